"""split_gguf.py MODEL STEM COUNT: writes the GGUF file MODEL in parts, STEM-00001-of-0000N.gguf and so on.

The metadata goes to the first part; every part says which one it is; the tensors are dealt out in order.
"""

import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U16, I32, STRING, ARRAY = 2, 5, 8, 9
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values[0] if len(values) == 1 else values

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, count = self.take("IQ")
            for _ in range(count):
                self.skip(inner)
        else:
            self.at += SIZES[kind]


def text(value):
    return struct.pack("<Q", len(value)) + value


def pair(key, kind, layout, value):
    return text(key) + struct.pack("<I" + layout, kind, value)


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def read_model(path):
    """(metadata pairs as bytes, how many, [(name, rest of the entry, bytes)])."""
    reader = Reader(open(path, "rb").read())
    magic, version, tensor_count, pair_count = reader.take("4sIQQ")
    assert magic == b"GGUF" and version == 3
    begin = reader.at
    for _ in range(pair_count):
        reader.text()
        reader.skip(reader.take("I"))
    pairs = reader.data[begin:reader.at]
    entries = []
    for _ in range(tensor_count):
        name = reader.text()
        start = reader.at
        dimensions = reader.take("I")
        reader.at += 8 * dimensions + 4
        entries.append((name, reader.data[start:reader.at], reader.take("Q")))
    base = reader.at + -reader.at % ALIGNMENT
    ends = sorted(offset for _, _, offset in entries)[1:] + [len(reader.data) - base]
    ends = dict(zip(sorted(offset for _, _, offset in entries), ends))
    tensors = [(name, entry, reader.data[base + offset:base + ends[offset]]) for name, entry, offset in entries]
    return pairs, pair_count, tensors


def write_part(path, pairs, pair_count, number, count, total, tensors):
    facts = (pair(b"split.no", U16, "H", number) + pair(b"split.count", U16, "H", count) +
             pair(b"split.tensors.count", I32, "i", total))
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), pair_count + 3) + pairs + facts
    offset = 0
    for name, entry, data in tensors:
        header += text(name) + entry + struct.pack("<Q", offset)
        offset += len(padded(data))
    with open(path, "wb") as out:
        out.write(padded(header))
        for _, _, data in tensors:
            out.write(padded(data))


def main():
    path, stem, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pairs, pair_count, tensors = read_model(path)
    each = -(-len(tensors) // count)
    for number in range(count):
        some = tensors[number * each:(number + 1) * each]
        write_part(f"{stem}-{number + 1:05}-of-{count:05}.gguf", pairs if number == 0 else b"",
                   pair_count if number == 0 else 0, number, count, len(tensors), some)


if __name__ == "__main__":
    main()
