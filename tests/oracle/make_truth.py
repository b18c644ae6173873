"""Makes the reference distributions of docs/accuracy.md and measures llama.cpp's own distance to them.

    make_truth.py --oracle DIR --out DIR NAME=MODEL.gguf [NAME=MODEL.gguf ...]

For each model: (1) llama-quantize expands every weight of the file to float32; (2) llama.cpp runs the expanded file
with float32 KV and no flash attention over the first 12 windows of 512 tokens of the handbook text and the
log-probabilities of the second half of each window are written as NAME.truth.isthlog; (3) the same windows through
the original file in llama.cpp's own arithmetic (f16 KV, flash attention on and off, whole windows; and token by token
over the first two windows); (4) the distances as NAME.peer.json; (5) with --golden DIR the compact rows for the
repository. Windows are cut as llama-perplexity does: the whole text is tokenised once, and where the model wants a
BOS, it replaces the first token of each window.

DIR of --oracle is made by bench/peers/build_llama.sh. Needs numpy and the Debian package debian-handbook.
"""
import argparse
import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np

import kl
import logits_file
from handbook_text import handbook_text

WINDOW = 512
FIRST = WINDOW // 2  # rows FIRST .. WINDOW - 2: the last token has nothing to predict
ROWS = WINDOW - 1 - FIRST
GOLDEN_WINDOWS = (1, 7)
GOLDEN_POSITIONS = range(383, 511)
PEER_RUNS = {  # name: options of llama_oracle, windows, token by token
    "windows, flash off": (["--kv", "f16", "--flash", "off"], None, False),
    "windows, flash on": (["--kv", "f16", "--flash", "on"], None, False),
    "by token, flash off": (["--kv", "f16", "--flash", "off"], 2, True),
    "by token, flash on": (["--kv", "f16", "--flash", "on"], 2, True),
}


def sha256(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def tokenise(oracle: Path, model: Path, text: str) -> tuple[int, np.ndarray, int | None]:
    """Vocabulary size, ids of the text, and the BOS id when the model wants one."""
    run = subprocess.run([oracle / "bin/llama_oracle", "tokens", model], input=text.encode(), check=True,
                         capture_output=True)
    head, ids = run.stdout.decode().split("\n", 1)
    _, vocab, _, bos, _, add_bos = head.split()
    return int(vocab), np.array(ids.split(), np.int32), int(bos) if add_bos == "1" else None


def cut_windows(ids: np.ndarray, bos: int | None, count: int) -> np.ndarray:
    if len(ids) < count * WINDOW:
        raise ValueError(f"the text has {len(ids)} tokens, fewer than {count} windows of {WINDOW}")
    windows = ids[: count * WINDOW].reshape(count, WINDOW).copy()
    if bos is not None:
        windows[:, 0] = bos
    return windows


def run_rows(oracle: Path, model: Path, log: logits_file.LogitsFile, options: list[str], out: Path,
             threads: int) -> None:
    """Runs every window through llama.cpp and writes a complete ISTHLOG1 file."""
    jobs = "\n".join(f"{log.first_row} {log.rows_per_window} " + " ".join(map(str, w)) for w in log.tokens.tolist())
    command = [oracle / "bin/llama_oracle", "rows", model, "--log-softmax", "--ctx", str(WINDOW),
               "--threads", str(threads), *options]
    with open(out, "wb") as file:
        file.write(log.head())
        file.flush()
        subprocess.run(command, input=jobs.encode(), stdout=file, check=True)
    logits_file.finish(out, log)


def measure_model(args: argparse.Namespace, name: str, model: Path) -> None:
    vocab, ids, bos = tokenise(args.oracle, model, handbook_text())
    windows = cut_windows(ids, bos, args.windows)
    digest = sha256(model)
    log = lambda producer, w=windows, flags=0: logits_file.LogitsFile(vocab, w, FIRST, ROWS, 0, flags, digest, producer)
    expanded, truth_path = args.out / f"{name}.f32.gguf", args.out / f"{name}.truth.isthlog"
    if not expanded.exists():
        subprocess.run([args.oracle / "bin/llama-quantize", "--allow-requantize", model, expanded, "F32"],
                       check=True, capture_output=True)
    if not truth_path.exists():
        run_rows(args.oracle, expanded, log("llama.cpp, float32"), ["--kv", "f32", "--flash", "off"], truth_path,
                 args.threads)
    truth = logits_file.load(truth_path)
    if args.golden:
        golden = logits_file.compact(truth, list(GOLDEN_WINDOWS), GOLDEN_POSITIONS)
        logits_file.write_json_gz(args.golden / f"{name}.json.gz", golden)
    results = {}
    for run, (options, limit, by_token) in PEER_RUNS.items():
        out = args.out / f"{name}.peer.{run.replace(', ', '-').replace(' ', '-')}.isthlog"
        flags = logits_file.BY_TOKEN if by_token else 0
        peer = log(f"llama.cpp, {run}", windows[:limit], flags)
        run_rows(args.oracle, model, peer, options + (["--by-token"] if by_token else []), out, args.threads)
        results[run] = kl.compare(truth, logits_file.load(out, verify=False))
        if not args.keep:
            out.unlink()
        print(name, run, json.dumps(results[run]), flush=True)
    (args.out / f"{name}.peer.json").write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--golden", type=Path, help="where to write NAME.json.gz")
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep the peer's rows too")
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for item in args.models:
        name, _, path = item.partition("=")
        measure_model(args, name, Path(path))


if __name__ == "__main__":
    main()
