"""Runs test programs: GoogleTest binaries in shards, scripts, fuzzers. Each writes its output to a log of its own."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from repo_files import ROOT  # noqa: E402  (the path above makes it importable)
from runner.results import BuildFailure, say

LOGS = ROOT / "build" / "logs"
CPUS = max(1, len(os.sched_getaffinity(0)))
TAIL_LINES = 60
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$")


def run_logged(command, log, seconds, env=None, cwd=ROOT):
    """Runs a command in a process group of its own; its exit status, or None when the time was up."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out:
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}, cwd=cwd,
                                   start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def tail(log):
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join("  | " + line for line in lines[-TAIL_LINES:])


def outcome(status, seconds):
    if status is None:
        return f"not done after {seconds} s"
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def in_parallel(jobs, width=CPUS):
    """Calls each job; results in order."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=width) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def build(preset, targets=(), arguments=()):
    """Configures and builds a preset; BuildFailure when that fails."""
    log = LOGS / f"build-{preset}.log"
    commands = [[ROOT / "tools/configure", preset, *arguments], ["cmake", "--build", "--preset", preset]]
    if targets:
        commands[1] += ["--target", *targets]
    for command in commands:
        status = run_logged(command, log, 3000)
        if status != 0:
            say(tail(log))
            raise BuildFailure(f"the build '{preset}' failed: {outcome(status, 3000)}")


def declared(preset):
    """What the build of a preset declares: unit_tests, real_tests, fuzzers, emulator."""
    return json.loads((ROOT / "build" / preset / "tests.json").read_text())


def failures_of(report):
    """Names of the failed tests in a GoogleTest report."""
    return [f"{suite['name']}.{test['name']}" for suite in report.get("testsuites", [])
            for test in suite.get("testsuite", []) if test.get("failures")]


def run_shard(preset, name, shard, shards, prefix, env, seconds, arguments):
    """One shard of one GoogleTest program: (passed, failed, what to say)."""
    stem = LOGS / preset / f"{name}-{shard}"
    report_file = stem.with_suffix(".json")
    stem.parent.mkdir(parents=True, exist_ok=True)
    report_file.unlink(missing_ok=True)
    log = stem.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="isthmus-test-") as scratch:
        os.chmod(scratch, 0o755)  # some tests give up their rights and must still reach their files
        shard_env = {**env, "GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard),
                     "TEST_TMPDIR": scratch, "TMPDIR": scratch}
        command = [*prefix, ROOT / "build" / preset / "tests" / name, f"--gtest_output=json:{report_file}", *arguments]
        status = run_logged(command, log, seconds, shard_env)
    try:
        report = json.loads(report_file.read_text())
    except (OSError, ValueError):
        return 0, 1, f"{name}: {outcome(status, seconds)} before its report\n{tail(log)}"
    failed = report["failures"]
    if status == 0:
        return report["tests"] - failed, failed, ""
    if failed == 0:
        return report["tests"], 1, f"{name}: {outcome(status, seconds)} after all tests passed\n{tail(log)}"
    return report["tests"] - failed, failed, f"{name}: {', '.join(failures_of(report))}\n{tail(log)}"


def run_gtests(results, preset, names, prefix=(), env=None, seconds=1200, arguments=()):
    """All shards of all programs, as many at once as there are CPUs."""
    jobs = [(lambda n=name, s=shard: run_shard(preset, n, s, CPUS, list(prefix), env or {}, seconds, list(arguments)))
            for name in names for shard in range(CPUS)]
    for passed, failed, problem in in_parallel(jobs):
        results.count(passed, failed)
        if problem:
            say("FAILED: " + problem)
    say(f"{len(names)} programs: {' '.join(names)}")


def run_script(script, preset, env, seconds=1500):
    """A test script: `run.sh BUILD_FOLDER`. Its last line may count: "N passed, N failed". (passed, failed, what to say)."""
    name = str(script.relative_to(ROOT))
    log = LOGS / preset / (name.replace("/", "-") + ".log")
    status = run_logged([script, ROOT / "build" / preset], log, seconds, env)
    lines = log.read_text(errors="replace").splitlines()
    counts = COUNTS.match(lines[-1]) if lines else None
    passed, failed = (int(counts[1]), int(counts[2])) if counts else (int(status == 0), int(status != 0))
    if status != 0 and failed == 0:
        failed = 1
    text = f"{name}: {passed} passed, {failed} failed"
    return passed, failed, text + (f"\nFAILED: {name}: {outcome(status, seconds)}\n{tail(log)}" if failed else "")


def run_scripts(results, scripts, preset, env=None, width=1):
    """Test scripts, `width` at once; what they say in their order."""
    for passed, failed, text in in_parallel([(lambda s=script: run_script(s, preset, env or {})) for script in scripts], width):
        results.count(passed, failed)
        say(text)


def run_fuzzer(preset, name, seconds):
    """One fuzz program for a while on a copy of its seeds: (name, status, log, executions)."""
    folder = ROOT / "build" / preset / "fuzz"
    seeds = ROOT / "tests/fuzz/corpus" / name
    work = folder / f"corpus-{name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    artifacts = folder / f"crash-{name}-"
    log = LOGS / preset / f"fuzz-{name}.log"
    command = [folder / f"fuzz_{name}", f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2560",
               f"-artifact_prefix={artifacts}", "-print_final_stats=1", work]
    if seeds.is_dir():
        command.append(seeds)
    status = run_logged(command, log, seconds * 2 + 120)
    shutil.rmtree(work, ignore_errors=True)
    runs = re.search(r"number_of_executed_units: (\d+)", log.read_text(errors="replace"))
    return name, status, log, int(runs[1]) if runs else 0


def run_fuzzers(results, preset, names, total_seconds, most_seconds):
    """All fuzz programs, within about `total_seconds` in all and `most_seconds` each."""
    if not names:
        return
    each = max(5, min(most_seconds, int(total_seconds * CPUS / len(names))))
    say(f"{len(names)} programs, {each} s each: {' '.join(names)}")
    for name, status, log, runs in in_parallel([(lambda n=name: run_fuzzer(preset, n, each)) for name in names]):
        say(f"fuzz_{name}: {runs} inputs")
        results.check(f"fuzz_{name}: {outcome(status, each)}", status == 0 and runs > 0, tail(log))
