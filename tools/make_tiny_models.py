#!/usr/bin/env python3
"""Writes small random GGUF models for tests: make_tiny_models.py OUT_DIR [--check GOLDEN_DIR] [NAME ...]

One model for each architecture variant and one for each tensor type that Isthmus computes with. The weights come from
a seed, so the files are the same bytes on every machine (tests/golden/tiny/*.json.gz hold their SHA-256); nothing
but Python's standard library is used. A quantised tensor is made of random blocks, not quantised from floats: every
bit of a block is exercised, scales are negative and subnormal now and then, and the sizes are chosen so that the
values have the spread of a trained layer. Files that exist with the right content are left alone. With --check the
files are compared with the SHA-256 that each golden file names.
"""
import argparse
import gzip
import hashlib
import json
import math
import random
import struct
import sys
from array import array
from dataclasses import dataclass, field, replace
from pathlib import Path

ALIGNMENT = 32
VOCAB = 300

# ---- tensor types: id, values per block, and a maker of random blocks with the standard deviation `sd` ----


def half(value: float) -> bytes:
    return struct.pack("<e", value)


def jitter(rng: random.Random, value: float, signed: bool) -> float:
    value *= rng.uniform(0.5, 1.5)
    return -value if signed and rng.random() < 0.25 else value


def plain_f32(rng, sd, count):
    # 16 random bits a value are enough, and exact in a float.
    step = sd * math.sqrt(3) / 32768
    return array("f", [v * step for v in array("h", rng.randbytes(2 * count))]).tobytes()


def plain_f16(rng, sd, count):
    step = sd * math.sqrt(3) / 32768
    return struct.pack(f"<{count}e", *[v * step for v in array("h", rng.randbytes(2 * count))])


def plain_bf16(rng, sd, count):
    words = array("I", plain_f32(rng, sd, count))
    return array("H", [w >> 16 for w in words]).tobytes()


def scaled(per_unit: float, signed: bool, zero: float | None, body: int):
    """d (f16), optionally m = zero * d (f16), then `body` random bytes; the values are d * q + m."""

    def block(rng, sd):
        d = jitter(rng, sd / per_unit, signed)
        head = half(d) if zero is None else half(d) + half(zero * d)
        return head + rng.randbytes(body)

    return block


def k_block(before: int, per_unit: float, dmin: float | None, after: int, signed: bool):
    """`before` random bytes, d, optionally dmin, `after` random bytes: the super-blocks of 256 values."""

    def block(rng, sd):
        d = jitter(rng, sd / per_unit, signed)
        head = half(d) + (b"" if dmin is None else half(dmin * d))
        return rng.randbytes(before) + head + rng.randbytes(after)

    return block


def mxfp4_block(rng, sd):
    exponent = 127 + round(math.log2(sd / 2.93)) + rng.choice((-1, 0, 1))
    return bytes([exponent]) + rng.randbytes(16)


# name: (GGUF id, values per block, block maker); the numbers are the spread of the integers of a random block.
BLOCKS = {
    "Q4_0": (2, 32, scaled(4.63, True, None, 16)),
    "Q4_1": (3, 32, scaled(4.61, False, -7.5, 16)),
    "Q5_0": (6, 32, scaled(9.24, True, None, 20)),
    "Q5_1": (7, 32, scaled(9.23, False, -15.5, 20)),
    "Q8_0": (8, 32, scaled(73.9, True, None, 32)),
    "Q2_K": (10, 256, k_block(80, 13.9, 1.5, 0, False)),
    "Q3_K": (11, 256, k_block(108, 42.4, None, 0, True)),
    "Q4_K": (12, 256, k_block(0, 258.0, 7.5, 140, False)),
    "Q5_K": (13, 256, k_block(0, 527.0, 15.5, 172, False)),
    "Q6_K": (14, 256, k_block(208, 1367.0, None, 0, True)),
    "IQ4_NL": (20, 32, scaled(66.0, True, None, 16)),
    "IQ4_XS": (23, 256, k_block(0, 1221.0, None, 134, True)),
    "MXFP4": (39, 32, mxfp4_block),
}
PLAIN = {"F32": (0, plain_f32), "F16": (1, plain_f16), "BF16": (30, plain_bf16)}


def type_id(name: str) -> int:
    return PLAIN[name][0] if name in PLAIN else BLOCKS[name][0]


def random_tensor(rng: random.Random, kind: str, sd: float, count: int) -> bytes:
    if kind in PLAIN:
        return PLAIN[kind][1](rng, sd, count)
    _, per_block, block = BLOCKS[kind]
    assert count % per_block == 0
    return b"".join(block(rng, sd) for _ in range(count // per_block))


# ---- the GGUF container (version 3) ----

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value) -> bytes:
    """Type and bytes of a metadata value; int -> u32, float -> f32, list of str or int -> array."""
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", ARRAY, I32, len(value)) + struct.pack(f"<{len(value)}i", *value)


def gguf_bytes(metadata: dict, tensors: list) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + value_bytes(value) for key, value in metadata.items())
    data = b""
    for name, dims, kind, raw in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id(kind), len(data))
        data += raw + bytes(-len(raw) % ALIGNMENT)
    return head + bytes(-len(head) % ALIGNMENT) + data


# ---- a vocabulary: the 256 bytes in GPT-2's spelling, 42 merges of letters, two control tokens ----


def byte_spelling() -> list[str]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, spare = [], 256
    for byte in range(256):
        out.append(chr(byte) if byte in printable else chr(spare))
        spare += byte not in printable
    return out


def vocabulary() -> dict:
    tokens, merges = byte_spelling(), []
    for a in "\u0120etaoin":
        for b in "srhldu":
            tokens.append(a + b)
            merges.append(f"{a} {b}")
    tokens += ["<|begin|>", "<|end|>"]
    assert len(tokens) == VOCAB
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (VOCAB - 2) + [3, 3],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": VOCAB - 2,
        "tokenizer.ggml.eos_token_id": VOCAB - 1,
        "tokenizer.ggml.add_bos_token": False,
    }


# ---- models ----


@dataclass
class Shape:
    arch: str = "llama"
    layers: int = 2
    width: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    ff: int = 160
    tied: bool = False
    kind: str = "F32"
    context: int = 1024
    rope_base: float = 10000.0
    extra: dict = field(default_factory=dict)  # further metadata, without the architecture's prefix
    factors: tuple = ()  # names of rope factor tensors
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    fused: bool = False
    # A tied head sets the spread of the logits, so it sets that of the embedding as well.
    tied_gain: float = 2.5
    final_norm: float = 1.0


def metadata_of(shape: Shape) -> dict:
    common = {
        "block_count": shape.layers, "context_length": shape.context, "embedding_length": shape.width,
        "feed_forward_length": shape.ff, "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads, "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.head_dim, "rope.freq_base": shape.rope_base, **shape.extra,
    }
    out = {"general.architecture": shape.arch, "general.name": "tiny", "general.alignment": ALIGNMENT}
    return out | {f"{shape.arch}.{key}": value for key, value in common.items()} | vocabulary()


class TensorMaker:
    """Appends named random tensors; `gain` is relative to 1 / sqrt(columns)."""

    def __init__(self, seed: str, kind: str):
        self.rng = random.Random(seed)
        self.kind = kind
        self.tensors = []

    def matrix(self, name: str, cols: int, rows: int, gain: float = 1.0) -> None:
        raw = random_tensor(self.rng, self.kind, gain / math.sqrt(cols), cols * rows)
        self.tensors.append((name + ".weight", (cols, rows), self.kind, raw))

    def vector(self, name: str, size: int, centre: float, spread: float) -> None:
        values = [centre + self.rng.uniform(-spread, spread) for _ in range(size)]
        self.tensors.append((name, (size,), "F32", struct.pack(f"<{size}f", *values)))


def add_attention(make: TensorMaker, shape: Shape, prefix: str) -> None:
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    make.vector(prefix + "attn_norm.weight", shape.width, 1.0, 0.3)
    if shape.fused:
        make.matrix(prefix + "attn_qkv", shape.width, q + 2 * kv, 1.5)
    else:
        for part, rows, gain in (("q", q, 1.5), ("k", kv, 1.5), ("v", kv, 1.0)):
            make.matrix(f"{prefix}attn_{part}", shape.width, rows, gain)
            if shape.qkv_bias:
                make.vector(f"{prefix}attn_{part}.bias", rows, 0.0, 1.0)
    if shape.qk_norm:
        make.vector(prefix + "attn_q_norm.weight", shape.head_dim, 1.2, 0.4)
        make.vector(prefix + "attn_k_norm.weight", shape.head_dim, 1.2, 0.4)
    make.matrix(prefix + "attn_output", q, shape.width)
    if shape.post_norms:
        make.vector(prefix + "post_attention_norm.weight", shape.width, 1.0, 0.3)


def add_feed_forward(make: TensorMaker, shape: Shape, prefix: str) -> None:
    make.vector(prefix + "ffn_norm.weight", shape.width, 1.0, 0.3)
    if shape.fused:
        make.matrix(prefix + "ffn_up", shape.width, 2 * shape.ff)
    else:
        make.matrix(prefix + "ffn_gate", shape.width, shape.ff)
        make.matrix(prefix + "ffn_up", shape.width, shape.ff)
    make.matrix(prefix + "ffn_down", shape.ff, shape.width, 1.5)
    if shape.post_norms:
        make.vector(prefix + "post_ffw_norm.weight", shape.width, 1.0, 0.3)


def llama3_divisors(shape: Shape) -> list[float]:
    """What "llama3" scaling divides each frequency by, from Llama 3.1's configuration: wavelengths beyond
    context / low_freq_factor by `factor`, those within context / high_freq_factor by 1, a ramp between."""
    value = {key: shape.extra[f"rope.scaling.{key}"] for key in
             ("factor", "low_freq_factor", "high_freq_factor", "original_context_length")}
    out = []
    for i in range(shape.head_dim // 2):
        wavelength = 2 * math.pi * shape.rope_base ** (2 * i / shape.head_dim)
        turns = value["original_context_length"] / wavelength
        ramp = (turns - value["low_freq_factor"]) / (value["high_freq_factor"] - value["low_freq_factor"])
        keep = min(1.0, max(0.0, ramp))
        out.append(1 / ((1 - keep) / value["factor"] + keep))
    return out


def make_model(name: str, shape: Shape, divisors_as_tensor: bool = False) -> bytes:
    """With `divisors_as_tensor`, a twin of a "llama3" model: rope_freqs.weight in place of the metadata."""
    make = TensorMaker(f"isthmus tiny {name}", shape.kind)
    if divisors_as_tensor:
        divisors = llama3_divisors(shape)
        make.tensors.append(("rope_freqs.weight", (len(divisors),), "F32", struct.pack(f"<{len(divisors)}f", *divisors)))
        shape = replace(shape, extra={})
    make.matrix("token_embd", shape.width, VOCAB, shape.tied_gain if shape.tied else math.sqrt(shape.width))
    for tensor in shape.factors:
        make.vector(tensor, shape.head_dim // 2, 3.0 if "long" in tensor else 1.5, 0.5)
    for layer in range(shape.layers):
        add_attention(make, shape, f"blk.{layer}.")
        add_feed_forward(make, shape, f"blk.{layer}.")
    make.vector("output_norm.weight", shape.width, shape.final_norm, 0.3)
    if not shape.tied:
        make.matrix("output", shape.width, VOCAB, 2.5)
    return gguf_bytes(metadata_of(shape), make.tensors)


LONG_ROPE = {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 256,
             "rope.scaling.attn_factor": 1.19}
ARCHITECTURES = {
    "llama": Shape(),
    "llama-tied-f16": Shape(tied=True, kind="F16", kv_heads=1),
    "llama-linear": Shape(extra={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama-yarn": Shape(extra={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                               "rope.scaling.original_context_length": 128}),
    "llama-llama3": Shape(extra={"rope.scaling.type": "llama3", "rope.scaling.factor": 8.0,
                                 "rope.scaling.low_freq_factor": 1.0, "rope.scaling.high_freq_factor": 4.0,
                                 "rope.scaling.original_context_length": 128}),
    "llama-rope-factors": Shape(factors=("rope_freqs.weight",), rope_base=500000.0),
    "qwen2": Shape(arch="qwen2", qkv_bias=True, heads=3, kv_heads=1, rope_base=1e6),
    "qwen3": Shape(arch="qwen3", qk_norm=True, tied=True, head_dim=48, rope_base=1e6),
    "gemma3": Shape(arch="gemma3", layers=7, qk_norm=True, post_norms=True, tied=True, kv_heads=1, head_dim=64,
                    rope_base=1e6, extra={"attention.sliding_window": 16}, tied_gain=0.5, final_norm=5.0),
    "phi3": Shape(arch="phi3", fused=True, heads=3, kv_heads=3),
    "phi3-longrope": Shape(arch="phi3", fused=True, heads=3, kv_heads=3, extra=LONG_ROPE,
                           factors=("rope_factors_long.weight", "rope_factors_short.weight")),
}
TYPES = {f"type-{kind.lower()}": Shape(layers=1, width=256, heads=4, kv_heads=1, head_dim=64, ff=256, tied=True, kind=kind)
         for kind in (*PLAIN, *BLOCKS)}
MODELS = ARCHITECTURES | TYPES


def write_models(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        content, path = make_model(name, MODELS[name]), out / f"{name}.gguf"
        if not path.exists() or hashlib.sha256(path.read_bytes()).digest() != hashlib.sha256(content).digest():
            partial = path.with_suffix(".part")
            partial.write_bytes(content)
            partial.rename(path)


def check_models(out: Path, golden: Path, names: list[str]) -> None:
    """Ends the program when a model is not the one whose logits were recorded."""
    for name in names:
        with gzip.open(golden / f"{name}.json.gz") as file:
            expected = json.load(file)["sha256"]
        if hashlib.sha256((out / f"{name}.gguf").read_bytes()).hexdigest() != expected:
            sys.exit(f"{name}.gguf is not the file that {golden / name}.json.gz was measured with; "
                     "run tests/oracle/make_tiny_golden.py after changing the models")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--check", type=Path, metavar="GOLDEN_DIR")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in MODELS]
    if unknown:
        sys.exit(f"no such model: {' '.join(unknown)}; there are {' '.join(MODELS)}")
    names = args.names or list(MODELS)
    write_models(args.out, names)
    if args.check:
        check_models(args.out, args.check, names)


if __name__ == "__main__":
    main()
