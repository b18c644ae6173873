#!/usr/bin/env python3
"""Regenerates dequant.golden: random blocks of every quantised type and what the `gguf` Python package (pip install
gguf; its gguf.quants is the reference implementation of the format's authors) makes of them.

The file is a list of records, little-endian: u32 type id, u32 columns, u32 bytes, the row's bytes, the columns as
float32. Scales are kept finite so that every value can be compared bit for bit.
"""
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

COLS = 512
# Byte offsets of the f16 fields in a block of each type.
HALF_FIELDS = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [],
}


def record(rng, kind):
    elems, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, size=(COLS // elems, size), dtype=np.uint8)
    for at in HALF_FIELDS[kind]:
        halves = (rng.standard_normal(len(blocks)) * 10.0 ** rng.integers(-6, 3)).astype(np.float16)
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    if kind == T.MXFP4:
        blocks[:4, 0] = [0, 1, 2, 200]  # both subnormal scales, the first normal one, a large one
    row = blocks.reshape(1, -1)
    values = dequantize(row, kind).astype("<f4").reshape(-1)
    assert np.isfinite(values).all() and values.size == COLS
    return struct.pack("<III", int(kind), COLS, row.size) + row.tobytes() + values.tobytes()


def main():
    rng = np.random.default_rng(20240607)
    out = pathlib.Path(__file__).with_name("dequant.golden")
    out.write_bytes(b"".join(record(rng, kind) for kind in HALF_FIELDS))


if __name__ == "__main__":
    main()
