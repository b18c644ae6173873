"""The files of the repository, for the checks: what git tracks or would track, so build trees are left out."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def list_files(root=ROOT):
    """Paths relative to `root`, sorted. Needs git, because a clone is where the checks run."""
    command = ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    return sorted(pathlib.Path(name) for name in set(out.split("\0")) if name and (root / name).is_file())


def read_text(path):
    """The file's text, or None when it is not UTF-8 text."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def report(problems, checked):
    """Prints the problems and a summary; the exit status."""
    for problem in problems:
        print(problem)
    print(f"{checked}: {'no problem' if not problems else str(len(problems)) + ' problem(s)'}")
    return 1 if problems else 0
