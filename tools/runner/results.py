"""Counts of a run, stage by stage, and the table that is printed from them."""

import dataclasses
import sys
import time


@dataclasses.dataclass
class Stage:
    name: str
    what: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


class BuildFailure(Exception):
    """Nothing after it can run."""


def say(text):
    print(text, flush=True)


class Results:
    """Collects stages. `count` adds to the stage that is open."""

    def __init__(self):
        self.stages = []

    def run(self, name, what, body):
        stage = Stage(name, what)
        self.stages.append(stage)
        say(f"\n== {name}: {what}")
        start = time.monotonic()
        try:
            body(self)
        finally:
            stage.seconds = time.monotonic() - start
            say(f"== {name}: {stage.passed} passed, {stage.failed} failed, {stage.seconds / 60:.1f} min")

    def count(self, passed, failed):
        self.stages[-1].passed += passed
        self.stages[-1].failed += failed

    def check(self, name, ok, detail=""):
        """One check that passed or failed; the detail is shown for a failure."""
        self.count(int(ok), int(not ok))
        if not ok:
            say(f"FAILED: {name}")
            if detail:
                say(detail)

    @property
    def passed(self):
        return sum(stage.passed for stage in self.stages)

    @property
    def failed(self):
        return sum(stage.failed for stage in self.stages)

    def table(self):
        lines = ["| stage | what | passed | failed | minutes |", "| --- | --- | ---: | ---: | ---: |"]
        for s in self.stages:
            lines.append(f"| {s.name} | {s.what} | {s.passed} | {s.failed} | {s.seconds / 60:.1f} |")
        minutes = sum(stage.seconds for stage in self.stages) / 60
        lines.append(f"| all | | {self.passed} | {self.failed} | {minutes:.1f} |")
        return "\n".join(lines) + "\n"

    def finish(self, last_line_file):
        """Prints the table and the last line, keeps that line in a file too; the exit status."""
        last = f"{self.passed} passed, {self.failed} failed"
        last_line_file.parent.mkdir(parents=True, exist_ok=True)
        last_line_file.write_text(last + "\n")
        sys.stderr.flush()
        say("\n" + self.table())
        say(last)
        return 0 if self.failed == 0 and self.passed > 0 else 1
