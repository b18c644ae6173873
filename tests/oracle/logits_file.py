"""Reads and writes reference distributions: the binary form ISTHLOG1 (docs/formats/logits.md) and the compact form.

Needs numpy. Every reader checks sizes and checksums and raises ValueError naming the file.
"""
import gzip
import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MAGIC = b"ISTHLOG1"
HEADER = struct.Struct("<8sIIIIIIIIII32s40sI")  # 124 bytes; its CRC-32 follows
HEADER_BYTES = 128
ROW_TYPES = {0: np.dtype("<f4"), 1: np.dtype("<f2")}
BY_TOKEN = 1


@dataclass
class LogitsFile:
    """Windows of tokens and, for some positions of each, the log-probabilities of the next token."""

    vocab: int
    tokens: np.ndarray  # int32 [windows][window_tokens]
    first_row: int  # row r of a window belongs to position first_row + r: it predicts the token after it
    rows_per_window: int
    row_type: int = 0
    flags: int = 0
    model_sha256: bytes = bytes(32)
    producer: str = ""
    rows: np.ndarray | None = field(default=None, repr=False)  # [windows * rows_per_window][vocab]

    def targets(self) -> np.ndarray:
        """The token that each row predicts, int32 [windows * rows_per_window]; -1 after a window's last token."""
        windows, length = self.tokens.shape
        padded = np.concatenate([self.tokens, np.full((windows, 1), -1, np.int32)], axis=1)
        begin = self.first_row + 1
        return padded[:, begin : begin + self.rows_per_window].reshape(-1)

    def head(self) -> bytes:
        """Header, tokens and padding: everything before the rows."""
        windows, length = self.tokens.shape
        body = np.ascontiguousarray(self.tokens, "<i4").tobytes()
        header = HEADER.pack(MAGIC, 1, HEADER_BYTES, self.row_type, self.vocab, windows, length, self.first_row,
                             self.rows_per_window, self.flags, 0, self.model_sha256,
                             self.producer.encode()[:40], zlib.crc32(body))
        out = header + struct.pack("<I", zlib.crc32(header)) + body
        return out + bytes(-len(out) % 64)


def finish(path: Path, log: LogitsFile) -> None:
    """Appends the row checksums to a file that holds head() and the rows."""
    row_bytes = ROW_TYPES[log.row_type].itemsize * log.vocab
    count = log.tokens.shape[0] * log.rows_per_window
    with open(path, "r+b") as file:
        file.seek(len(log.head()))
        sums = []
        for _ in range(count):
            row = file.read(row_bytes)
            if len(row) != row_bytes:
                raise ValueError(f"{path}: {len(sums)} rows where {count} were expected")
            sums.append(zlib.crc32(row))
        if file.read(1):
            raise ValueError(f"{path}: more rows than expected")
        file.write(np.array(sums, "<u4").tobytes())


def load(path: Path, verify: bool = True) -> LogitsFile:
    """Maps the file; rows are read on demand."""
    data = np.memmap(path, np.uint8, "r")
    header = data[:HEADER_BYTES].tobytes()
    if len(header) < HEADER_BYTES or header[:8] != MAGIC:
        raise ValueError(f"{path}: not an ISTHLOG1 file")
    if zlib.crc32(header[:124]) != struct.unpack("<I", header[124:])[0]:
        raise ValueError(f"{path}: header checksum")
    (_, version, header_bytes, row_type, vocab, windows, length, first, per_window, flags, _, sha, producer,
     tokens_crc) = HEADER.unpack(header[:124])
    if version != 1 or header_bytes != HEADER_BYTES or row_type not in ROW_TYPES:
        raise ValueError(f"{path}: version {version} or row type {row_type} unknown")
    token_bytes = data[HEADER_BYTES : HEADER_BYTES + 4 * windows * length].tobytes()
    if zlib.crc32(token_bytes) != tokens_crc:
        raise ValueError(f"{path}: token checksum")
    log = LogitsFile(vocab, np.frombuffer(token_bytes, "<i4").reshape(windows, length), first, per_window, row_type,
                     flags, sha, producer.rstrip(b"\0").decode())
    begin = len(log.head())
    dtype, count = ROW_TYPES[row_type], windows * per_window
    end = begin + count * vocab * dtype.itemsize
    if len(data) != end + 4 * count:
        raise ValueError(f"{path}: {len(data)} bytes where {end + 4 * count} were expected")
    raw = data[begin:end].reshape(count, vocab * dtype.itemsize)
    if verify:
        for i, crc in enumerate(np.frombuffer(data[end:].tobytes(), "<u4")):
            if zlib.crc32(raw[i]) != crc:
                raise ValueError(f"{path}: checksum of row {i}")
    log.rows = raw.view(dtype)
    return log


def compact(log: LogitsFile, windows: list[int], positions: range, top: int = 64) -> dict:
    """The `top` most likely tokens of some positions, with the mass of all others."""
    out = []
    for window in windows:
        rows = []
        for position in positions:
            row = log.rows[window * log.rows_per_window + position - log.first_row].astype(np.float64)
            ids = np.argsort(-row, kind="stable")[:top]
            rest = max(0.0, float(np.exp(row).sum() - np.exp(row[ids]).sum()))
            rows.append({"position": position, "ids": ids.tolist(), "logp": [round(float(v), 5) for v in row[ids]],
                         "rest": float(f"{rest:.6g}")})
        out.append({"tokens": log.tokens[window].tolist(), "rows": rows})
    return {"producer": log.producer, "model_sha256": log.model_sha256.hex(), "vocab": log.vocab, "windows": out}


def write_json_gz(path: Path, value) -> None:
    """Reproducible bytes: no time stamp, no name in the gzip header."""
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(json.dumps(value, separators=(",", ":")).encode())
