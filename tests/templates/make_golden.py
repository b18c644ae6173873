#!/usr/bin/env python3
"""Writes golden.json: the snippets with what jinja2 renders for them. Usage: make_golden.py OUTPUT"""
import json
import sys

import oracle
import snippets


def main():
    environment = oracle.make_environment()
    cases = []
    for template in ["{{ " + e + " }}" for e in snippets.EXPRESSIONS] + snippets.TEMPLATES:
        try:
            result = oracle.render(environment.from_string(template), snippets.CONTEXT)
        except Exception:  # does not compile
            result = {"error": ""}
        if " object at 0x" in result.get("ok", "") or "<function" in result.get("ok", ""):
            continue  # an address: different in every run
        cases.append([template, result.get("ok")])
    with open(sys.argv[1], "w") as out:
        out.write('{"now": %d,\n"context": %s,\n"cases": [\n' % (oracle.NOW, json.dumps(snippets.CONTEXT)))
        out.write(",\n".join(json.dumps(case) for case in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    main()
