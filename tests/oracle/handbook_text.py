"""The evaluation text: the paragraphs of Debian's package debian-handbook, as plain text.

    handbook_text.py OUT [LANGUAGE]

A paragraph is a <div class="para"> of at least 200 characters once its tags are gone; pages in the order of their
names, paragraphs separated by an empty line. The package must be installed (apt-get install debian-handbook).
"""
import html
import re
import sys
from pathlib import Path

ROOT = Path("/usr/share/doc/debian-handbook/html")
MIN_CHARS = 200


def paragraphs(page: str) -> list[str]:
    for element in ("head", "script", "style"):
        page = re.sub(rf"(?s)<{element}\b.*?</{element}>", "", page)
    out = []
    for inner in re.findall(r'(?s)<div class="para">(.*?)</div>', page):
        text = html.unescape(re.sub(r"<[^>]+>", "", inner))
        text = " ".join(text.split())
        if len(text) > MIN_CHARS:
            out.append(text)
    return out


def handbook_text(language: str = "en-US") -> str:
    pages = sorted((ROOT / language).glob("*.html"))
    if not pages:
        raise FileNotFoundError(f"{ROOT / language}: no pages; install the package debian-handbook")
    out = []
    for page in pages:
        out += paragraphs(page.read_text(encoding="utf-8", errors="ignore"))
    return "\n\n".join(out)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    Path(sys.argv[1]).write_text(handbook_text(*sys.argv[2:3]), encoding="utf-8")
