#!/usr/bin/env python3
"""Compares Isthmus's tokenizers with llama.cpp's and with Hugging Face `tokenizers` on seeded strings.

    python3 tests/tokenizer/oracle.py --tool build/release/tests/tokenizer_tool --llama DIR MODEL.gguf...

DIR holds llama.cpp's include/ and lib/. Needs the Python packages tokenizers, gguf, numpy and unicodedata2 (15.1.0).
Every difference is printed; the exit code is 1 when there is one. Where the two references themselves differ, Isthmus
must side with llama.cpp and the difference must be of a class that docs/tokenizers.md explains; each class is counted
apart. --corpus FOLDER writes MODEL.json.gz, a sample with the expected ids for the regression test (corpus.h).
compare.sh runs this with everything it needs.
"""
import argparse
import collections
import gzip
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import hugging_face
import strings

PARSE, ADD = 1, 2


class Tool:
    """A process that speaks the protocol of tokenizer_tool.cc."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

    def read(self, item):
        count = struct.unpack("<I", self.process.stdout.read(4))[0]
        return self.process.stdout.read(count * item)

    def ask(self, request):
        self.process.stdin.write(request)
        self.process.stdin.flush()

    def encode(self, data, flags):
        self.ask(b"e" + struct.pack("<II", flags, len(data)) + data)
        data = self.read(4)
        return list(struct.unpack(f"<{len(data) // 4}i", data))

    def decode(self, ids, flags):
        self.ask(b"d" + struct.pack(f"<II{len(ids)}i", flags, len(ids), *ids))
        return self.read(1)

    def stops(self):
        self.ask(b"s")
        data = self.read(4)
        return list(struct.unpack(f"<{len(data) // 4}i", data))


def build_llama_tool(llama, folder):
    source = pathlib.Path(__file__).with_name("llama_tool.cc")
    tool = pathlib.Path(folder) / "llama_tool"
    subprocess.run(["c++", "-std=c++20", "-O2", f"-I{llama}/include", source, "-o", tool, f"-L{llama}/lib", "-lllama",
                    f"-Wl,-rpath,{llama}/lib", f"-Wl,-rpath-link,{llama}/lib"], check=True)
    return str(tool)


class Report:
    def __init__(self, model):
        self.model = model
        self.compared = collections.Counter()
        self.different = collections.Counter()

    def check(self, what, text, got, want):
        self.compared[what] += 1
        if got == want:
            return
        self.different[what] += 1
        if self.different[what] <= 5:
            print(f"{self.model}: {what}: {text!r}\n  isthmus   {got}\n  reference {want}")

    def summary(self):
        for what, count in self.compared.items():
            print(f"{self.model}: {what}: {count} compared, {self.different[what]} different")
        return sum(self.different.values())


def llama_view(data):
    """What llama.cpp's byte-level BPE makes of bytes that are not UTF-8: U+FFFD for each."""
    return b"".join(c.encode() for c in data.decode("utf-8", "surrogateescape").translate(
        {0xDC00 + i: "\ufffd" for i in range(256)}))


def compare_valid(report, texts, ours, llama, hf):
    corpus = []
    for text in texts:
        data = text.encode()
        for flags, name in ((0, "as text"), (PARSE, "specials parsed"), (ADD, "with BOS and EOS")):
            got = ours.encode(data, flags)
            want = llama.encode(data, flags)
            report.check(f"llama.cpp, {name}", text, got, want)
            if flags != ADD:
                corpus.append([text, flags, want])
        ids = ours.encode(data, 0)
        report.check("decode, llama.cpp", text, ours.decode(ids, 0), llama.decode(ids, 0))
        if hf:
            for flags, name in ((0, "as text"), (PARSE, "specials parsed")):
                row = corpus[-2 if flags == 0 else -1]
                compare_hugging_face(report, f"Hugging Face, {name}", row, ours, hf)
    return corpus


def compare_hugging_face(report, what, row, ours, hf):
    """Compares the text of a corpus row; where the references differ and the class is known, appends Hugging Face's ids
    and the class to the row."""
    text, flags, llama_ids = row

    def ids_of(text):
        return ours.encode(text.encode(), flags), hf.encode(text, flags == PARSE)

    def agree(text):
        got, want = ids_of(text)
        return got == want

    got, want = ids_of(text)
    known = hf.known_difference(text, agree) if got != want and got == llama_ids else None
    if known:
        report.compared[f"{what}, different by {known}"] += 1
        row += [want, known]
    else:
        report.check(what, text, got, want)


def compare_broken(report, blobs, ours, llama, byte_level):
    for data in blobs:
        got = ours.encode(data, 0)
        if not byte_level:
            report.check("llama.cpp, broken UTF-8", data, got, llama.encode(data, 0))
            continue
        # llama.cpp writes U+FFFD where Isthmus keeps the bytes; so the text that it sees is compared, and that
        # nothing but bytes without a token is lost.
        seen = llama_view(data)
        report.check("llama.cpp, broken UTF-8 as it reads it", data, ours.encode(seen, 0), llama.encode(seen, 0))
        kept = bytes(b for b in data if b not in MISSING_BYTES)
        report.check("broken UTF-8 comes back", data, ours.decode(got, 0), kept)


MISSING_BYTES = set()


def write_corpus(path, corpus, limit):
    """A spread of short cases, and every one in which the references differ, as JSON (corpus.h)."""
    short = [row for row in corpus if len(row[0].encode()) <= 400]
    step = max(1, len(short) // limit)
    rows = [row for i, row in enumerate(short) if i % step == 0 or len(row) > 3]
    write_json(path, rows)
    print(f"{path}: {len(rows)} cases, {pathlib.Path(path).stat().st_size} bytes")


def write_json(path, value):
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as out:
        out.write(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--tool", required=True)
    parser.add_argument("--llama", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--corpus", help="folder for MODEL.json.gz")
    parser.add_argument("--corpus-cases", type=int, default=1000)
    args = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        llama_tool = build_llama_tool(args.llama, folder)
        for model in args.models:
            vocab = hugging_face.read_vocab(model)
            MISSING_BYTES.clear()
            MISSING_BYTES.update(hugging_face.missing_bytes(vocab))
            report = Report(pathlib.Path(model).stem)
            ours, llama = Tool([args.tool, model]), Tool([llama_tool, model])
            hf = hugging_face.build(vocab, set(llama.stops()))
            report.check("stop tokens", model, ours.stops(), llama.stops())
            corpus = compare_valid(report, strings.valid_strings(args.seed, args.count), ours, llama, hf)
            compare_broken(report, strings.broken_strings(args.seed + 1, args.count // 10), ours, llama,
                           vocab["model"] == "gpt2")
            wrong += report.summary()
            if args.corpus:
                write_corpus(f"{args.corpus}/{report.model}.json.gz", corpus, args.corpus_cases)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
