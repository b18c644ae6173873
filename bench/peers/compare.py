#!/usr/bin/env python3
"""Measures Isthmus and llama.cpp, or its relative ik_llama.cpp, side by side and prints the ratios.

    compare.py --isthmus PROGRAM --peer FOLDER [--rounds N] [--out FILE.json] [--variant NAME[:KIND]=ARGUMENTS ...]
               NAME=MODEL.gguf [NAME=MODEL.gguf ...]

FOLDER is what build_llama.sh or build_ik.sh printed. For every model, thread count and depth the two programs run in turn, the order
reversed in every other round, so that a machine that speeds up or slows down does so for both. llama.cpp gets every
combination of flash attention on/off and run-time repacking on/off in the first round; later rounds keep those within
15 % of the best on some line. Each line takes the medians over the rounds, and llama.cpp's best setting for that line
alone. Figures: tokens/s of prefill and decode, and the peak memory of each program. The JSON holds every repeat.
A variant is a further run of Isthmus in every round, with other arguments and lines of its own: --variant
"fast:prefill=--precision fast" --variant "int8 KV:decode=--kv q8_0"; KIND limits it to those lines.
Without --isthmus only the peer is measured.
"""
import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

KEEP_WITHIN = 1.15
OURS = "isthmus"


@dataclass(frozen=True)
class Variant:
    """A way to run Isthmus. `setting` names it among the peer's settings; `kind` is empty, "prefill" or "decode"."""

    name: str
    kind: str
    arguments: tuple

    @property
    def setting(self) -> str:
        return f"{OURS} {self.name}".strip()


def is_ours(setting: str) -> bool:
    return setting.startswith(OURS)


def parse_variant(text: str) -> Variant:
    head, _, arguments = text.partition("=")
    name, _, kind = head.partition(":")
    if not name or kind not in ("", "prefill", "decode"):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME[:prefill|:decode]=ARGUMENTS")
    return Variant(name, kind, tuple(arguments.split()))


@dataclass(frozen=True)
class Cell:
    """What one run of a program covers: all prompt lengths and the decode length at one depth and thread count."""

    model: str
    path: Path
    threads: int
    depth: int


@dataclass
class Samples:
    """tokens/s by (kind, tokens) and setting, and the peak bytes by setting."""

    speed: dict = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    memory: dict = field(default_factory=lambda: defaultdict(list))

    def add(self, setting: str, rows: list[tuple], peak: int) -> None:
        for kind, tokens, rate in rows:
            self.speed[kind, tokens][setting].append(rate)
        self.memory[setting].append(peak)

    def worth_keeping(self, setting: str) -> bool:
        for by_setting in self.speed.values():
            peers = {s: max(v) for s, v in by_setting.items() if not is_ours(s)}
            if setting in peers and peers[setting] * KEEP_WITHIN >= max(peers.values()):
                return True
        return False


def run_measured(command: list) -> tuple[dict, int]:
    """The JSON that the program prints, and its peak resident bytes."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"compare: exit code {process.returncode}: {' '.join(map(str, command))}")
    return json.loads(output), usage.ru_maxrss * 1024


def run_ours(args, cell: Cell, variant: Variant) -> tuple[list, int]:
    prefill, decode = ("0" if variant.kind == other else wanted
                       for other, wanted in (("decode", args.prefill), ("prefill", args.decode)))
    report, peak = run_measured([args.isthmus, "bench", cell.path, "-p", prefill, "-n", decode, "-d", cell.depth, "-t",
                                 cell.threads, "--json", *args.isthmus_args.split(), *variant.arguments])
    return [(row["kind"], row["tokens"], row["tokens_per_second"]) for row in report["rows"]], peak


def run_peer(args, cell: Cell, setting: str, states: Path) -> tuple[list, int]:
    flash, repack = ("on" if f"{name} on" in setting else "off" for name in ("flash", "repack"))
    command = [args.peer / "bin/llama_peer", cell.path, "--threads", cell.threads, "--depth", cell.depth, "--flash",
               flash, "--repack", repack, "--prefill", args.prefill, "--decode", args.decode]
    if cell.depth:
        command += ["--state", states / f"{cell.model}-{cell.depth}-{flash}"]
        if not command[-1].exists():  # filling costs memory and time that a measurement should not have
            run_measured(command[:-6] + ["--prefill", "1", "--decode", "0", *command[-2:]])
    report, peak = run_measured(command)
    return [(row["kind"], row["tokens"], row["tokens"] / row["seconds"]) for row in report["rows"]], peak


def measure(args, cells: list[Cell]) -> dict:
    """Samples of every cell."""
    all_settings = [f"flash {flash}, repack {repack}" for flash, repack in itertools.product(("off", "on"), repeat=2)]
    ours = {v.setting: v for v in [Variant("", "", ()), *args.variant]} if args.isthmus else {}
    results = {cell: Samples() for cell in cells}
    with tempfile.TemporaryDirectory() as states:
        for number in range(args.rounds):
            for cell in cells:
                samples = results[cell]
                settings = [s for s in all_settings if number == 0 or samples.worth_keeping(s)]
                order = [*ours, *settings]
                for setting in order if number % 2 == 0 else reversed(order):
                    rows, peak = (run_ours(args, cell, ours[setting]) if setting in ours else
                                  run_peer(args, cell, setting, Path(states)))
                    samples.add(setting, rows, peak)
                print(f"round {number + 1}/{args.rounds}: {cell.model}, {cell.threads} threads, depth {cell.depth}",
                      file=sys.stderr)
    return results


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def lines_of(cell: Cell, key: tuple, by_setting: dict) -> list[dict]:
    """A line for each way that Isthmus ran, or one of the peer alone."""
    peers = {s: v for s, v in by_setting.items() if not is_ours(s)}
    best = max(peers, key=lambda s: statistics.median(peers[s]))
    peer = {"model": cell.model, "threads": cell.threads, "depth": cell.depth, "kind": key[0], "tokens": key[1],
            "variant": "", "peer": statistics.median(peers[best]), "peer_setting": best,
            "peer_spread": spread(peers[best]), "repeats": {s: v for s, v in by_setting.items()}}
    lines = []
    for setting, rates in by_setting.items():
        if not is_ours(setting):
            continue
        median = statistics.median(rates)
        lines.append(peer | {"variant": setting[len(OURS):].strip(), "isthmus": median, "isthmus_spread": spread(rates),
                             "ratio": median / peer["peer"]})
    return lines or [peer]


def first_match(path: str, prefix: str) -> str:
    with open(path) as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith(prefix)), "unknown")


def machine(args) -> dict:
    flags = set((first_match("/proc/cpuinfo", "flags") + first_match("/proc/cpuinfo", "Features")).split())
    interesting = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16", "asimddp", "i8mm")
    return {"cpu": first_match("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "isa": [flag for flag in interesting if flag in flags], "memory": first_match("/proc/meminfo", "MemTotal"),
            "kernel": platform.release(), "arch": platform.machine(),
            "load_average": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d"),
            "peer": (args.peer / "complete").read_text().strip() if (args.peer / "complete").exists() else "llama.cpp"}


def print_table(facts: dict, lines: list[dict], memory: list[dict]) -> None:
    print(f"{facts['cpu']}, {facts['cores']} cores, {' '.join(facts['isa'])}, load {facts['load_average']:.1f}; "
          f"{facts['peer']}\n")
    peer = facts["peer"].split(" ")[0]
    print(f"| model | threads | depth | line | isthmus t/s | {peer} t/s (best setting) | ratio |")
    print("|---|---|---|---|---|---|---|")
    for line in lines:
        ours = f"{line['isthmus']:.1f} ± {50 * line['isthmus_spread']:.0f} %" if "isthmus" in line else "-"
        ratio = f"{line['ratio']:.2f}" if "ratio" in line else "-"
        variant = f", {line['variant']}" if line["variant"] else ""
        print(f"| {line['model']} | {line['threads']} | {line['depth']} | {line['kind']} {line['tokens']}{variant} | {ours} | "
              f"{line['peer']:.1f} ± {50 * line['peer_spread']:.0f} % ({line['peer_setting']}) | {ratio} |")
    print(f"\n| model | threads | peak memory at depth 0, MB: isthmus | {peer}, smallest setting |\n|---|---|---|---|")
    for row in memory:
        ours = f"{row['isthmus'] / 1e6:.0f}" if row["isthmus"] else "-"
        print(f"| {row['model']} | {row['threads']} | {ours} | {row['peer'] / 1e6:.0f} |")
    ratios = [line["ratio"] for line in lines if "ratio" in line and not line["variant"]]
    if ratios:
        behind = sum(ratio < 1 for ratio in ratios)
        print(f"\n{len(ratios)} lines without variants, {behind} behind; ratio: lowest {min(ratios):.2f}, "
              f"geometric mean {statistics.geometric_mean(ratios):.2f}, highest {max(ratios):.2f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", type=Path)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--isthmus-args", default="-r 1", help="further arguments of `isthmus bench`")
    parser.add_argument("--variant", type=parse_variant, action="append", default=[], metavar="NAME[:KIND]=ARGUMENTS")
    parser.add_argument("-p", "--prefill", default="128,512")
    parser.add_argument("-n", "--decode", default="64")
    parser.add_argument("-d", "--depths", default="0,4096")
    parser.add_argument("-t", "--threads", default="1,2")
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    cells = []
    for item in args.models:
        name, _, path = item.partition("=")
        cells += [Cell(name, Path(path), int(threads), int(depth)) for threads in args.threads.split(",")
                  for depth in args.depths.split(",")]
    facts, results = machine(args), measure(args, cells)
    lines = [line for cell, samples in results.items() for key, by_setting in samples.speed.items()
             for line in lines_of(cell, key, by_setting)]
    # Deeper, the peer's driver holds a copy of the KV, so only depth 0 compares.
    memory = [{"model": cell.model, "threads": cell.threads, "isthmus": max(samples.memory[OURS], default=0),
               "peer": min(max(peaks) for setting, peaks in samples.memory.items() if not is_ours(setting))}
              for cell, samples in results.items() if cell.depth == 0]
    print_table(facts, lines, memory)
    if args.out:
        args.out.write_text(json.dumps({"machine": facts, "rows": lines, "memory": memory}, indent=1) + "\n")


if __name__ == "__main__":
    main()
