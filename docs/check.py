#!/usr/bin/env python3
"""Checks the documents: links, anchors and named files exist, every page is linked, lines are short, discouraged words
are not used, the dependencies in ARCHITECTURE.md are those of the crates, and the picture of the terminal matches its
recording.

    docs/check.py        prints all problems, and exits with 1 if there are any
"""

import fnmatch
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Generated pages: line length is not checked.
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
# Paths in backticks that begin with one of these name files of the repository, and so do those with an extension.
DIRECTORIES = ("bench/", "crates/", "docs/", "scripts/", "tests/")
FILE = re.compile(r"[\w.*-]+(/[\w.*-]+)*/[\w.*-]*\.\w+")
# Examples of files that users have, and pages that the next run of a benchmark writes.
OTHER_FILES = ["**/*.txt", "conf/*.json", "docs/**", "docs/a", "owners/team.20a", "docs/benchmarks/sdk.md"]
OTHER_DIRECTORIES = ("DATA_DIR/", ".git/")
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


@functools.cache
def repository_paths():
    """Returns the files and directories of the repository, and each of them without its first directories."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = set()
    for names in (file.split("/") for file in files if (ROOT / file).exists()):
        paths.update("/".join(names[start:end]) for end in range(1, len(names) + 1) for start in range(end))
    return paths


def missing_files(page):
    for number, line in enumerate(prose(page.read_text()), 1):
        for code in re.findall(r"`([^`\s]+)(?:\s[^`]*)?`", line):
            path = code.rstrip("/")
            is_file = code.startswith(DIRECTORIES) or FILE.fullmatch(code)
            if not is_file or path in OTHER_FILES or path.startswith(OTHER_DIRECTORIES):
                continue
            if path not in repository_paths() and not fnmatch.filter(repository_paths(), path):
                yield f"{page.relative_to(ROOT)}:{number}: `{code}` is not in the repository"


def style(page):
    if page.parent == ROOT / "docs/benchmarks" or page in LISTS:
        return
    name = page.relative_to(ROOT)
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if len(line) > COLUMNS and not line.startswith("|") and not is_generated(page):
            yield f"{name}:{number}: {len(line)} columns, more than {COLUMNS}"
        for word, instead in WORDS.items():
            if re.search(word, line, re.IGNORECASE):
                yield f"{name}:{number}: `{re.search(word, line, re.IGNORECASE)[0]}`: {instead}"


def crates():
    """Compares the table of crates in ARCHITECTURE.md with the `Cargo.toml` files."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(crates/[\w-]+\) \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    written = {name: set(re.findall(r"`([\w-]+)`", uses)) for name, uses in rows}
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        name, uses = manifest.parent.name, set()
        for table in re.split(r"^\[", manifest.read_text(), flags=re.MULTILINE):
            if re.match(r"([^\]]*\.)?(build-)?dependencies\]", table):
                uses.update(re.findall(r"^workspace-([\w-]+)", table, re.MULTILINE))
        if written.pop(name, None) != uses:
            yield f"ARCHITECTURE.md: `{name}` depends on {', '.join(sorted(uses)) or 'no other crate'}"
    yield from (f"ARCHITECTURE.md: there is no crate `{name}`" for name in written)


def picture():
    program = ROOT / "docs/pictures/terminal.py"
    if subprocess.run([sys.executable, program, "check"], capture_output=True).returncode:
        yield "docs/pictures/try.svg is out of date: run docs/pictures/terminal.py draw"


def main():
    all_pages = pages()
    wrong = [*unlinked(all_pages), *crates(), *picture()]
    for page in all_pages:
        wrong += [*broken_links(page), *missing_files(page), *style(page)]
    print("\n".join(wrong) if wrong else f"checked {len(all_pages)} pages, no problems")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
