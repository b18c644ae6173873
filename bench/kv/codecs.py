#!/usr/bin/env python3
"""Measures what coded KV costs in accuracy and prints the tables of docs/kv-quantisation.md.

    codecs.py --isthmus PROGRAM --text TEXT --out FOLDER [--peer DIR] [--windows N] NAME=MODEL.gguf [NAME=MODEL.gguf ...]

The reference of each model is the same program with KV as it was written (f16), on windows of 1,024 tokens of TEXT whose
newer half is scored. With --peer (what bench/peers/build_llama.sh made; needs numpy) llama.cpp's KV of type q8_0 and q4_0
is held against its own f16 KV on the same windows. Every run leaves its result in FOLDER and is not run again.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

CONTEXT = 1024
UNIFORM = ["8", "k8v4", "4", "k4v2", "2", "k2v1", "1"]
KEYS = ["rotated", "unrotated"]
PEER_TYPES = ["q8_0", "q4_0"]
# One scale and one minimum in float16 for 32 values; llama.cpp's have a scale alone.
OVERHEAD = 1.0
PEER_BITS = {"q8_0": 8.5, "q4_0": 4.5}


def layers_of(args, model: str) -> int:
    shown = subprocess.run([args.isthmus, "show", model, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(shown)["layers"]


def asymmetric(layers: int) -> list:
    """AsymKV's shape between 4 and 2, and 2 and 1 bits: the keys of the first layers get more, values do not."""
    shares = [layers, 3 * layers // 4, layers // 2, layers // 4]
    return [f"asym:{k}/0:{high}/{low}" for high, low in ((4, 2), (2, 1)) for k in shares]


def mean_bits(bits: str, layers: int) -> float:
    """Of a coded value, with its share of scale and minimum."""
    if bits.startswith("asym:"):
        ks, _, pair = bits[5:].partition(":")
        high, low = map(int, pair.split("/"))
        k, v = map(int, ks.split("/"))
        return ((k + v) * high + (2 * layers - k - v) * low) / (2 * layers) + OVERHEAD
    if bits.startswith("k"):
        k, v = bits[1:].split("v")
        return (int(k) + int(v)) / 2 + OVERHEAD
    return int(bits) + OVERHEAD


def reference(args, name: str, model: str) -> Path:
    log = args.out / f"{name}.f16.isthlog"
    if not log.exists():
        part = log.with_suffix(".part")
        subprocess.run([args.isthmus, "eval", "kl", model, args.text, "--save", part, "-c", str(CONTEXT), "--windows",
                        str(args.windows)], check=True, stdout=subprocess.DEVNULL)
        part.rename(log)
    return log


def distance(args, name: str, model: str, bits: str, keys: str) -> dict:
    path = args.out / f"codec-{name}-{bits.replace('/', '_').replace(':', '-')}-{keys}.json"
    if not path.exists():
        output = subprocess.run([args.isthmus, "eval", "kl", model, reference(args, name, model), "-c", str(CONTEXT),
                                 "--kv-bits", bits, "--kv-keys", keys, "--json"], check=True, stdout=subprocess.PIPE,
                                text=True).stdout
        path.write_text(output)
    return json.loads(path.read_text())


def cell(report: dict) -> str:
    return f"{report['mean_kl']:.2g} / {100 * report['same_top1']:.1f} % / {report['perplexity_ratio']:.4f}"


def table(args, models: dict, settings, keys: str, title: str) -> None:
    print(f"\n{title}: mean KL / same likeliest token / ratio of perplexities\n")
    print("| bits | a value | " + " | ".join(models) + " |\n|" + " --- |" * (len(models) + 2))
    for row in zip(*(settings(layers_of(args, model)) for model in models.values())):
        sizes = {f"{mean_bits(bits, layers_of(args, model)):.2f}" for bits, model in zip(row, models.values())}
        cells = [cell(distance(args, name, model, bits, keys)) for bits, (name, model) in zip(row, models.items())]
        label = row[0] if len(set(row)) == 1 else " · ".join(row)
        print(f"| {label} | {' · '.join(sorted(sizes))} | " + " | ".join(cells) + " |", flush=True)


def peer_rows(args, model: str, log, kv: str):
    """llama.cpp's log-probabilities on the windows of a reference, window by window."""
    import numpy as np
    first, count = log.first_row, log.rows_per_window
    for window in log.tokens:
        job = f"{first} {count} " + " ".join(map(str, window)) + "\n"
        run = subprocess.run([args.peer / "bin/llama_oracle", "rows", model, "--kv", kv, "--flash", "on", "--ctx",
                              str(CONTEXT), "--log-softmax"], input=job.encode(), check=True, stdout=subprocess.PIPE)
        yield np.frombuffer(run.stdout, np.float32).reshape(count, log.vocab)


def peer_distance(args, name: str, model: str, kv: str) -> dict:
    path = args.out / f"peer-{name}-{kv}.json"
    if path.exists():
        return json.loads(path.read_text())
    import numpy as np
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/oracle"))
    import logits_file
    log = logits_file.load(reference(args, name, model), verify=False)
    kl, same, loss = [], [], []
    for index, (truth, rows) in enumerate(zip(peer_rows(args, model, log, "f16"), peer_rows(args, model, log, kv))):
        p, q = truth.astype(np.float64), rows.astype(np.float64)
        kl.append((np.exp(p) * (p - q)).sum(axis=1))
        same.append(p.argmax(axis=1) == q.argmax(axis=1))
        targets = log.tokens[index][log.first_row + 1 : log.first_row + 1 + log.rows_per_window]
        places = np.arange(len(targets)), targets  # the last row has no token to predict
        loss.append(p[places] - q[places])
    report = {"mean_kl": float(np.concatenate(kl).mean()), "same_top1": float(np.concatenate(same).mean()),
              "perplexity_ratio": float(np.exp(np.concatenate(loss).mean()))}
    path.write_text(json.dumps(report))
    return report


def peer_table(args, models: dict) -> None:
    print("\nllama.cpp's KV against its own f16 KV: mean KL / same likeliest token / ratio of perplexities\n")
    print("| type | bits a value | " + " | ".join(models) + " |\n|" + " --- |" * (len(models) + 2))
    for kv in PEER_TYPES:
        cells = [cell(peer_distance(args, name, model, kv)) for name, model in models.items()]
        print(f"| {kv} | {PEER_BITS[kv]} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    models = dict(model.split("=", 1) for model in args.models)
    table(args, models, lambda _: UNIFORM, "rotated", "Keys rotated")
    table(args, models, lambda _: UNIFORM, "unrotated", "Keys unrotated")
    table(args, models, asymmetric, "rotated", "AsymKV, keys rotated")
    if args.peer:
        peer_table(args, models)


if __name__ == "__main__":
    main()
