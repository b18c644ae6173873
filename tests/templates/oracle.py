#!/usr/bin/env python3
"""Renders real chat templates with jinja2 as transformers configures it and with our interpreter, and compares.

Usage: oracle.py TEMPLATE_RENDER CACHE_DIR. The templates are fetched by package name into CACHE_DIR (those vendored
in the source package of llama-cpp-python) and not kept in this repository. Every template is rendered over every
conversation of conversations.py; both sides must give the same text, or both must fail. Exit 0: no mismatch.
"""
import datetime
import json
import pathlib
import subprocess
import sys
import tarfile

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

import conversations

PACKAGE = "llama-cpp-python==0.3.36"
MIN_TEMPLATES = 60
NOW = 1_764_504_000  # a fixed time that both sides' strftime_now sees, UTC


class Generation(jinja2.ext.Extension):
    """The tag {% generation %}: transformers renders its body as a call block."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def make_environment():
    """The environment in which transformers compiles a chat template."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def render(compiled, context):
    """{"ok": text} or {"error": message}, as template_render prints it."""
    try:
        return {"ok": compiled.render(**context)}
    except Exception as error:  # any Python exception is a failed render
        return {"error": f"{type(error).__name__}: {error}"}


def fetch(cache):
    """Templates by name, downloading the package on first use."""
    folder = cache / "templates"
    if not folder.is_dir():
        download = cache / "download"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        pip += ["-d", str(download), PACKAGE]
        archives = list(download.glob("llama_cpp_python-*.tar.gz"))
        if not archives:
            # Building metadata may fail without a compiler; the archive is there all the same.
            subprocess.run(pip, check=False)
            archives = list(download.glob("llama_cpp_python-*.tar.gz"))
        if not archives:
            sys.exit(f"oracle: cannot fetch {PACKAGE}")
        folder.mkdir(parents=True)
        with tarfile.open(archives[0]) as tar:
            for member in tar:
                if member.name.endswith(".jinja"):
                    data = tar.extractfile(member).read()
                    (folder / pathlib.PurePath(member.name).name).write_bytes(data)
    return {path.name: path.read_bytes().decode() for path in sorted(folder.glob("*.jinja"))}


def run_ours(tool, cases, cache):
    path = cache / "cases.jsonl"
    with path.open("w") as out:
        for template, context in cases:
            out.write(json.dumps({"template": template, "context": context, "now": NOW}) + "\n")
    output = subprocess.run([tool, str(path)], check=True, capture_output=True).stdout.decode()
    return [json.loads(line) for line in output.split("\n") if line]


def report(name, label, theirs, ours):
    print(f"MISMATCH {name} / {label}")
    for who, result in (("jinja2", theirs), ("ours", ours)):
        text = json.dumps(result, ensure_ascii=False)
        print(f"  {who}: {text if len(text) < 400 else text[:400] + ' …'}")
    if "ok" in theirs and "ok" in ours:
        a, b = theirs["ok"], ours["ok"]
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        print(f"  first difference at {at}: {a[at - 30:at + 40]!r} / {b[at - 30:at + 40]!r}")


def main():
    tool, cache = sys.argv[1], pathlib.Path(sys.argv[2])
    cache.mkdir(parents=True, exist_ok=True)
    templates = fetch(cache)
    if len(templates) < MIN_TEMPLATES:
        sys.exit(f"oracle: only {len(templates)} templates, {MIN_TEMPLATES} are needed")
    named, cases = [], []
    for name, template in templates.items():
        for label, context in conversations.CASES.items():
            named.append((name, label))
            cases.append((template, context))
    environment = make_environment()
    compiled = {name: environment.from_string(template) for name, template in templates.items()}
    mismatches = rendered = 0
    for (name, label), case, ours in zip(named, cases, run_ours(tool, cases, cache)):
        theirs = render(compiled[name], case[1])
        rendered += "ok" in theirs
        if ("ok" in theirs) != ("ok" in ours) or theirs.get("ok") != ours.get("ok"):
            mismatches += 1
            report(name, label, theirs, ours)
    print(
        f"{len(templates)} templates x {len(conversations.CASES)} conversations: {len(cases)} renders, "
        f"{rendered} with text, {len(cases) - rendered} failed on purpose, {mismatches} mismatches"
    )
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
