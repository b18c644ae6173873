#!/usr/bin/env python3
"""Measures what the policies of the KV cache forget and prints the tables of docs/kv.md.

    measure.py --isthmus PROGRAM --text TEXT --out FOLDER [--texts N] [--windows N] NAME=MODEL.gguf [NAME=MODEL.gguf ...]

Every run of the program leaves its JSON in FOLDER, and what is there already is not run again, so a measurement that was
cut off goes on where it was. TEXT is hay for the retrieval tasks and the text whose perplexity is measured.
"""
import argparse
import json
import subprocess
from pathlib import Path

POLICIES = ["window", "random", "snapkv", "pyramidkv", "adakv", "expected", "keydiff", "kvzip"]
BUDGETS = ["0.5", "0.25"]


def run(args, name: str, command: list) -> dict:
    path = args.out / f"{name}.json"
    if not path.exists():
        output = subprocess.run([str(part) for part in [args.isthmus, *command, "--json"]], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        path.write_text(output)
    return json.loads(path.read_text())


def retrieval(args, models: dict) -> None:
    found = {name: run(args, f"retrieval-{name}", ["eval", "retrieval", model, args.text, "--lengths", 1024, "--needles",
                                                   "1,4", "--limit", args.texts]) for name, model in models.items()}
    for needles in (1, 4):
        for known in (True, False):
            print(f"\n{needles} number(s) hidden, question {'known' if known else 'unknown'} when keys go: "
                  f"answers right of {args.texts} (mean log-probability of the answer)\n")
            print("| policy, keys kept | " + " | ".join(models) + " |\n|" + " --- |" * (len(models) + 1))
            cells = {name: {row["policy"]: row for row in report["rows"]
                            if row["needles"] == needles and row["question_known"] == known}
                     for name, report in found.items()}
            for policy in next(iter(cells.values())):
                rows = [cells[name][policy] for name in models]
                print(f"| {policy.replace(':', ', ')} | " +
                      " | ".join(f"{row['right']} ({row['mean_logprob']:.1f})" for row in rows) + " |")


def perplexity(args, models: dict) -> None:
    print("\nPerplexity of the second half of windows of 1,024 tokens, as a ratio to the whole cache's\n")
    print("| policy, keys kept | " + " | ".join(models) + " |\n|" + " --- |" * (len(models) + 1))
    command = ["eval", "ppl"]
    rest = [args.text, "-c", 1024, "--stride", 512, "--windows", args.windows]
    full = {name: run(args, f"ppl-{name}-full", [*command, model, *rest])["perplexity"] for name, model in models.items()}
    print("| full | " + " | ".join(f"{full[name]:.2f}" for name in models) + " |")
    for budget in BUDGETS:
        for policy in POLICIES:
            cells = []
            for name, model in models.items():
                report = run(args, f"ppl-{name}-{policy}-{budget}",
                             [*command, model, *rest, "--kv-policy", policy, "--kv-budget", budget])
                cells.append(f"{report['perplexity'] / full[name]:.3f}")
            print(f"| {policy}, {budget} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    models = dict(item.split("=", 1) for item in args.models)
    retrieval(args, models)
    perplexity(args, models)


if __name__ == "__main__":
    main()
