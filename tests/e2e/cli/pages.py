"""pages.py PROGRAM FOLDER: compares the help of each command with its page FOLDER/VERB.md, both ways.

Every option of the help is named on the page; every option that the page's tables and synopses name is in the help; a
default that the help shows stands in the option's row, where it has one, or in a synopsis. Prints what does not agree.
"""

import pathlib
import re
import subprocess
import sys

FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][a-zA-Z0-9-]*")


def help_of(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout


def verbs(program):
    listed = re.findall(r"^  ([a-z]+) ", help_of(program), re.MULTILINE)
    return [verb for verb in listed if verb]


def options_of(text):
    """{flag: shown default or None} of a help text; -h and --json are the frame's."""
    found = {}
    body = text.split("\nOptions:\n", 1)[-1]
    for entry in re.split(r"\n(?=  -)", "\n" + body):
        head = re.match(r"\n?  (-[^\s,]+(?:, -[^\s,]+)*)", entry)
        if not head:
            continue
        default = re.search(r"\[([^\[\]]+)\]\s*$", entry)
        for flag in FLAG.findall(head[1]):
            found[flag] = default[1] if default else None
    return {flag: default for flag, default in found.items() if flag not in ("-h", "--help", "--json")}


def page_parts(text, verb):
    """(rows of tables that are about options, synopsis lines of this command)."""
    rows = re.findall(r"^\| (`-.*)$", text, re.MULTILINE)
    synopses = re.findall(rf"^isthmus {verb}\b[^\n\"]*", text, re.MULTILINE)
    return rows, synopses


def problems(verb, options, page):
    rows, synopses = page_parts(page, verb)
    for flag, default in options.items():
        spelled = re.compile(rf"(?<![\w-]){re.escape(flag)}(?![\w-])")
        if not spelled.search(page):
            yield f"{verb}.md does not name {flag}"
        for row in rows:
            first = row.split(" | ")[0]
            said = default is None or "as for" in row or any(default in part for part in [row, *synopses])
            if spelled.search(first) and not said:
                yield f"{verb}.md: the row of {flag} does not say its default, {default}"
    known = {*options, "-h", "--help", "--json"}
    for line in [row.split(" | ")[0] for row in rows] + synopses:
        for flag in FLAG.findall(line):
            if flag not in known:
                yield f"{verb}.md names {flag}, which isthmus {verb} does not have"


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    found = []
    names = verbs(program)
    for verb in names:
        page = folder / f"{verb}.md"
        if not page.exists():
            found.append(f"no page {page.name}")
            continue
        text = page.read_text()
        options = options_of(help_of(program, verb))
        found.extend(problems(verb, options, text))
        if "--json" in help_of(program, verb):
            if "JSON" not in text and "--json" not in text:
                found.append(f"{verb}.md does not say what --json prints")
        elif "--json" in text:
            found.append(f"{verb}.md speaks of --json, which isthmus {verb} does not have")
    if len(names) < 10:
        found.append(f"only {len(names)} commands were found: {names}")
    print("\n".join(found) or f"{len(names)} pages agree with the program")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
