#!/usr/bin/env python3
"""Measures what --lookup gains: tokens/s of generation without and with it, in turns, on three kinds of text.

    compare.py PROGRAM NAME=MODEL.gguf [NAME=MODEL.gguf ...] [--rounds N] [--tokens N] [--threads N] [--draft-max N]
               [--task edit,quote,fresh] [--out FILE.json]

edit: code is repeated with a name changed. quote: a paragraph is repeated. fresh: a story with nothing to copy, kept from
repeating itself by a penalty and from ending. Each is run greedily and with a seed; odd rounds run the two in the
reverse order. Prints medians, the share
of drafted tokens that were right, and whether all answers were the same token for token; exit code 1 when one was not.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

TEXTS = Path(__file__).resolve().parent / "texts"
SAMPLING = {"greedy": ["--greedy"], "drawn": ["--temperature", "0.7", "--seed", "1"]}
MORE = {"fresh": ["--repeat-penalty", "1.2", "--penalty-window", "0", "--ignore-eos"]}


def answer(args, model, task, sampling, lookup):
    """The JSON of one run."""
    prompt = (TEXTS / f"{task}.txt").read_text()
    command = [args.program, "run", model, "-", "--json", "-n", str(args.tokens), *SAMPLING[sampling],
               *MORE.get(task, [])]
    if args.threads:
        command += ["-t", str(args.threads)]
    if lookup:
        command += ["--lookup", "--draft-max", str(args.draft_max)]
    done = subprocess.run(command, input=prompt, text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def measure(args, model, task, sampling):
    rates = {False: [], True: []}
    answers = []
    figures = {}
    for i in range(args.rounds):
        for lookup in ([False, True] if i % 2 == 0 else [True, False]):
            reply = answer(args, model, task, sampling, lookup)
            rates[lookup].append(reply["figures"]["decode_tokens_per_second"])
            answers.append((reply["tokens"], reply["text"], reply["finish_reason"]))
            if lookup:
                figures = reply["figures"]
    plain, fast = statistics.median(rates[False]), statistics.median(rates[True])
    return {
        "task": task, "sampling": sampling, "tokens": figures["generated_tokens"], "plain": plain, "lookup": fast,
        "ratio": fast / plain, "drafted": figures["drafted_tokens"], "accepted": figures["accepted_tokens"],
        "verify_steps": figures["verify_steps"], "same": all(a == answers[0] for a in answers),
        "plain_rates": rates[False], "lookup_rates": rates[True],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--draft-max", type=int, default=15)
    parser.add_argument("--task", default="edit,quote,fresh")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    rows = []
    print("| model | text | sampling | tokens | plain, tokens/s | lookup, tokens/s | ratio | right of drafted | steps | same |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for named in args.models:
        name, model = named.split("=", 1)
        for task in args.task.split(","):
            for sampling in SAMPLING:
                row = {"model": name, **measure(args, model, task, sampling)}
                rows.append(row)
                print(f"| {name} | {task} | {sampling} | {row['tokens']} | {row['plain']:.1f} | {row['lookup']:.1f} | "
                      f"{row['ratio']:.2f} | {row['accepted']} of {row['drafted']} | {row['verify_steps']} | "
                      f"{'yes' if row['same'] else 'NO'} |", flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
