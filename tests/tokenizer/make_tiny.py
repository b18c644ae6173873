#!/usr/bin/env python3
"""Makes the small vocabularies and expected ids that the golden test reads, for settings no real model here has.

    python3 tests/tokenizer/make_tiny.py --tool build/release/tests/tokenizer_tool --llama DIR

tiny_bpe.gguf is a byte-level BPE of 256 bytes and 700 merges, trained on the test strings; the expected ids of the
pre-tokenizers gpt-2, smollm, qwen2, llama-bpe and default are llama.cpp's on copies of it that name each of them.
tiny_spm.gguf is a SentencePiece vocabulary with space prefix, user-defined and control tokens. For each case the ids of
Isthmus, llama.cpp and, for the byte-level ones, Hugging Face `tokenizers` are compared as in oracle.py.
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile

import gguf
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

import hugging_face
import oracle
import strings

DATA = pathlib.Path(__file__).with_name("data")
PRE_TOKENIZERS = ["gpt-2", "smollm", "qwen2", "llama-bpe", "default"]


def write_gguf(path, model, pre, tokens, kinds, scores=None, merges=None, ids=None, flags=None):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if scores:
        writer.add_token_scores(scores)
    if merges:
        writer.add_token_merges(merges)
    for name, value in (ids or {}).items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", value)
    for name, value in (flags or {}).items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def train_bpe():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = hugging_face.pre_tokenizer("llama-bpe")
    tokenizer.train_from_iterator(strings.valid_strings(99, 6000)[1800:], trainers.BpeTrainer(
        vocab_size=956, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    merges = [" ".join(m) for m in json.loads(tokenizer.to_str())["model"]["merges"]]
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.get), merges


def make_bpe(path, pre, tokens, merges):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "<|im_"]
    kinds = [1] * len(tokens) + [3, 3, 3, 4, 4]
    write_gguf(path, "gpt2", pre, tokens + special, kinds, merges=merges,
               ids={"bos": len(tokens), "eos": len(tokens) + 2}, flags={"add_bos_token": True, "add_eos_token": True})


def make_spm(path):
    """Pieces are the substrings that occur most often, as a stand-in for training; scores fall with the rank."""
    counts = {}
    for text in strings.valid_strings(98, 3000)[1800:]:
        text = text.replace(" ", "▁")
        for size in range(1, 6):
            for at in range(0, len(text) - size + 1, 3):
                counts[text[at:at + size]] = counts.get(text[at:at + size], 0) + size
    pieces = sorted(counts, key=lambda p: (-counts[p], p))[:1200]
    random.Random(97).shuffle(pieces)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    special = {"<|user|>": 3, "<|end|>": 3, "  ": 4, "\n\n": 4, "<table>": 4}
    for piece in pieces:
        if piece not in special and piece not in tokens:
            tokens.append(piece)
            kinds.append(1)
    scores = [0.0] * 259 + [-float(i // 3) for i in range(len(tokens) - 259)]
    for token, kind in special.items():
        tokens.append(token)
        kinds.append(kind)
        scores.append(-1000.0)
    write_gguf(path, "llama", "default", tokens, kinds, scores=scores, ids={"bos": 1, "eos": 2, "unknown": 0})


def texts():
    return [t for t in strings.valid_strings(42, 2600)[1100:] if len(t.encode()) < 300]


def forged(ids):
    """Whether plain text became one of tiny_spm's control tokens, BOS in front apart. Isthmus refuses that."""
    return any(i in (1, 2) for i in ids[1:])


def compare(name, report, ours, llama, hf):
    rows = []
    for text in texts():
        data = text.encode()
        for flags in (0, oracle.PARSE, oracle.ADD):
            got, want = ours.encode(data, flags), llama.encode(data, flags)
            if name == "spm" and flags != oracle.PARSE and forged(want):
                report.compared["llama.cpp, text that it takes for a control token"] += 1
                continue
            report.check(f"llama.cpp, flags {flags}", text, got, want)
            rows.append([text, flags, want])
            if hf and flags != oracle.ADD:
                oracle.compare_hugging_face(report, f"Hugging Face, flags {flags}", rows[-1], ours, hf)
    step = max(1, len(rows) // 160)
    different = [row for row in rows if len(row) > 3][:20]
    return rows[::step] + [row for row in different if row not in rows[::step]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--llama", required=True)
    args = parser.parse_args()
    wrong = 0
    golden = {}
    tokens, merges = train_bpe()
    with tempfile.TemporaryDirectory() as folder:
        llama_tool = oracle.build_llama_tool(args.llama, folder)
        files = {pre: f"{folder}/{pre}.gguf" for pre in PRE_TOKENIZERS}
        for pre, path in files.items():
            make_bpe(path, pre, tokens, merges)
        make_bpe(DATA / "tiny_bpe.gguf", "gpt-2", tokens, merges)
        make_spm(DATA / "tiny_spm.gguf")
        files["spm"] = str(DATA / "tiny_spm.gguf")
        for name, path in files.items():
            report = oracle.Report(name)
            hf = None if name == "spm" else hugging_face.build(hugging_face.read_vocab(path), set())
            golden[name] = compare(name, report, oracle.Tool([args.tool, path]), oracle.Tool([llama_tool, path]), hf)
            wrong += report.summary()
    oracle.write_json(DATA / "tiny.json.gz", golden)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
