#!/usr/bin/env python3
"""Measures prompts made of modules and prints the tables of docs/prompt-modules.md.

    modules.py --isthmus PROGRAM --text TEXT --out FOLDER [--prompts N] NAME=MODEL.gguf [NAME=MODEL.gguf ...]

Makes a schema of documents cut out of TEXT and prompts that take three to five of them (1,000 to 2,000 tokens) and ask
about one, then runs `isthmus eval modules`. Every run leaves its JSON in FOLDER, and what is there already is not run
again.
"""
import argparse
import json
import random
import subprocess
from pathlib import Path
from xml.sax.saxutils import escape

TEMPLATES = {"gemma3": "gemma"}  # of models whose file has none
DOCUMENTS = 8
CHARACTERS = 1600  # of a document: some 350 tokens
INTRODUCTION = ("You answer questions about the administration of computers. Use the documents below, and say which of "
                "them an answer comes from.")
QUESTIONS = ("Sum up document {0} in one sentence.", "What does document {0} advise, and why?",
             "Which program does document {0} speak of first?", "In what do documents {0} and {1} differ?",
             "Write a question that document {0} answers.")


def documents(text: str) -> list[str]:
    """Whole paragraphs, until a document is long enough."""
    out, current = [], ""
    for paragraph in text.split("\n\n"):
        current += paragraph.strip() + "\n\n"
        if len(current) >= CHARACTERS:
            out.append(current)
            current = ""
        if len(out) == DOCUMENTS:
            return out
    raise SystemExit("the text is too short")


def make_schema(folder: Path, text: str, prompts: int) -> tuple[Path, Path]:
    parts = [f'<schema name="handbook" role="system">{INTRODUCTION}\n\n']
    for i, document in enumerate(documents(text)):
        parts.append(f'<module name="doc{i}">Document {i}:\n{escape(document)}</module>')
    schema = folder / "handbook.xml"
    schema.write_text("".join(parts) + "</schema>\n")
    rng, lines = random.Random(1), []
    for i in range(prompts):
        taken = sorted(rng.sample(range(DOCUMENTS), 3 + i % 3))
        asked = rng.sample(taken, 2)
        question = QUESTIONS[i % len(QUESTIONS)].format(*asked)
        lines.append("<prompt>" + "".join(f"<doc{d}/>" for d in taken) + question + "</prompt>")
    asked = folder / "prompts.txt"
    asked.write_text("\n".join(lines) + "\n")
    return schema, asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isthmus", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    schema, prompts = make_schema(args.out, args.text.read_text(), args.prompts)
    for item in args.models:
        name, _, model = item.partition("=")
        path = args.out / f"modules-{name}.json"
        if not path.exists():
            template = ["--template", TEMPLATES[name]] if name in TEMPLATES else []
            output = subprocess.run([args.isthmus, "eval", "modules", model, prompts, "--schema", schema, "--json",
                                     *template], check=True, stdout=subprocess.PIPE, text=True).stdout
            path.write_text(output)
        report = json.loads(path.read_text())
        print(f"\n{name}: {report['prompts']} prompts of {report['mean_prompt_tokens']:.0f} tokens in the mean; read as "
              f"a whole, the first token comes after {report['whole_ttft_ms']:.0f} ms\n")
        print("| places | modules see | repair | computed anew | first token | sooner | KL, first token | KL, 32 tokens | same "
              "likeliest token |\n|" + " --- |" * 9)
        for row in report["rows"]:
            print(f"| {row['places']} | {row['modules']} | {row['repair']} | {row['recomputed']:.1%} | {row['ttft_ms']:.0f} ms | "
                  f"{row['sooner']:.1f} | {row['first_kl']:.4f} | {row['mean_kl']:.4f} | {row['same_top']:.1%} |")


if __name__ == "__main__":
    main()
