"""Makes tests/golden/tiny/NAME.json.gz: logits of the models of tools/make_tiny_models.py.

    make_tiny_golden.py --oracle DIR --out DIR [NAME ...]

The truth of a model is llama.cpp's run of the same file with every weight expanded to float32, float32 KV, no flash
attention. `peer` is llama.cpp's own run of the file as it is (its quantised arithmetic): mean and largest KL to the
truth over the same rows. A sequence that was run with another context length than 1024 says so in `context` (the
length decides between the short and the long RoPE factors).
"""
import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from logits_file import write_json_gz

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import make_tiny_models as tiny  # noqa: E402

SHORT = (7, range(7), 1024)
MIDDLE = (40, (15, 16, 17, 31, 32, 33, 39), 1024)
LONG = (300, (255, 256, 257, 299), 1024)
SEQUENCES = {  # name or kind of model: (tokens, positions with a row, context length) of each sequence
    "architecture": (SHORT, MIDDLE, LONG),
    "type": ((6, (0, 3, 5), 1024), (40, (7, 33, 39), 1024)),
    "phi3-longrope": ((7, range(7), 256), (40, (15, 32, 39), 256), LONG),
}


def plan_of(name: str):
    return SEQUENCES.get(name) or SEQUENCES["type" if name in tiny.TYPES else "architecture"]


def run(oracle: Path, model: Path, tokens: list[int], positions, context: int, options: list[str]) -> np.ndarray:
    """Rows of logits, float32 [positions][vocab], after the tokens up to and including each position."""
    first, last = min(positions), max(positions)
    job = f"{first} {last - first + 1} {' '.join(map(str, tokens))}"
    result = subprocess.run([oracle / "bin/llama_oracle", "rows", model, "--ctx", str(context), "--threads", "1",
                             *options], input=job.encode(), stdout=subprocess.PIPE, check=True)
    rows = np.frombuffer(result.stdout, "<f4").reshape(last - first + 1, tiny.VOCAB)
    return rows[[p - first for p in positions]]


def log_softmax(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    rows = rows - rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def golden_of(oracle: Path, name: str, folder: Path) -> dict:
    tiny.write_models(folder, [name])
    original, expanded = folder / f"{name}.gguf", folder / f"{name}.expanded.gguf"
    model, shape = original, tiny.MODELS[name]
    if shape.extra.get("rope.scaling.type") == "llama3":
        # llama.cpp knows this scaling only as a tensor of divisors: the reference runs a twin that has it.
        model = folder / f"{name}.twin.gguf"
        model.write_bytes(tiny.make_model(name, shape, divisors_as_tensor=True))
    subprocess.run([oracle / "bin/llama-quantize", "--allow-requantize", model, expanded, "F32"], check=True,
                   capture_output=True)
    rng, sequences, distances = random.Random(f"sequences of {name}"), [], []
    for length, positions, context in plan_of(name):
        tokens = [rng.randrange(tiny.VOCAB) for _ in range(length)]
        truth = run(oracle, expanded, tokens, positions, context, ["--kv", "f32"])
        peer = run(oracle, model, tokens, positions, context, ["--kv", "f16"])
        p, q = log_softmax(truth), log_softmax(peer)
        distances += (np.exp(p) * (p - q)).sum(axis=1).tolist()
        sequences.append({"tokens": tokens, "positions": list(positions), "context": context,
                          "logits": [[float(f"{v:.9g}") for v in row] for row in truth]})
    return {"model": original.name, "sha256": hashlib.sha256(original.read_bytes()).hexdigest(),
            "peer": {"mean_kl": float(np.mean(distances)), "max_kl": float(np.max(distances))},
            "sequences": sequences}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or tiny.MODELS:
            golden = golden_of(args.oracle, name, Path(folder))
            write_json_gz(args.out / f"{name}.json.gz", golden)
            spread = np.std([row for s in golden["sequences"] for row in s["logits"]])
            print(f"{name}: logits {spread:.2f}, peer {golden['peer']}", flush=True)


if __name__ == "__main__":
    main()
