#!/usr/bin/env python3
"""Checks the documents: links and anchors exist, every page is linked, lines are short, discouraged words are not used,
and the picture of the terminal matches its recording.

    docs/check.py        prints all problems, and exits with 1 if there are any
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Generated pages: line length and words are not checked.
GENERATED = [ROOT / "docs" / name for name in ("errors.md", "settings.md")] + [ROOT / "docs/benchmarks"]
# Lists of one entry per line, which may be long.
LISTS = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "crates/README.md")]
COLUMNS = 120
# Discouraged words, and the words to use instead.
WORDS = {
    r"\bwhoever\b": "name the person or the program",
    r"\bsuperuser": "root",
    r"\blazy view": "lazy mount",
    r"\bFUSE mount": "lazy mount",
    r"\bstarted ahead\b": "pre-started, or warm pool",
}
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def pages():
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
    return sorted([*found, ROOT / "crates/README.md", ROOT / "bench/README.md"])


def is_generated(page):
    return any(page == path or path in page.parents for path in GENERATED)


def prose(text):
    """Returns the lines of a text; lines of code blocks are empty."""
    fenced, lines = False, []
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        lines.append("" if fenced else line)
    return lines


def anchors(page):
    """Returns the anchors that GitHub generates for the headings of a page."""
    names = set()
    for line in prose(page.read_text()):
        if line.startswith("#"):
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("# ")).lower()
            names.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return names


def links(page):
    for number, line in enumerate(prose(page.read_text()), 1):
        for target in LINK.findall(re.sub(r"`[^`]*`(?!\])", lambda code: code[0].replace("](", "] ("), line)):
            if not re.match(r"[a-z]+:", target):
                yield number, target


def broken_links(page):
    for number, target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            yield f"{page.relative_to(ROOT)}:{number}: {target} does not exist"
        elif anchor and anchor not in anchors(there):
            yield f"{page.relative_to(ROOT)}:{number}: {target} has no such heading"


def unlinked(all_pages):
    """Returns pages that cannot be reached from the README by links."""
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        for _, target in links(page):
            there = (page.parent / target.partition("#")[0]).resolve()
            waiting.append(there / "README.md" if there.is_dir() else there)
    return [f"{page.relative_to(ROOT)}: no page links to it" for page in all_pages if page not in seen]


def style(page):
    if is_generated(page) or page in LISTS:
        return
    name = page.relative_to(ROOT)
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if len(line) > COLUMNS and not line.startswith("|"):
            yield f"{name}:{number}: {len(line)} columns, more than {COLUMNS}"
        for word, instead in WORDS.items():
            if re.search(word, line, re.IGNORECASE):
                yield f"{name}:{number}: `{re.search(word, line, re.IGNORECASE)[0]}`: {instead}"


def picture():
    program = ROOT / "docs/pictures/terminal.py"
    if subprocess.run([sys.executable, program, "check"], capture_output=True).returncode:
        yield "docs/pictures/try.svg is out of date: run docs/pictures/terminal.py draw"


def main():
    all_pages = pages()
    wrong = [*unlinked(all_pages), *picture()]
    for page in all_pages:
        wrong += [*broken_links(page), *style(page)]
    print("\n".join(wrong) if wrong else f"checked {len(all_pages)} pages, no problems")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
