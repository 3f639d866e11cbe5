"""Lines of code of the same programs with two SDKs, side by side."""

import os
import re
import subprocess
import sys

from data import bench_directory
from programs import ROOT

SOURCES = os.path.join(ROOT, "bench/harness/sdk_lines")
PAGE = os.path.join(ROOT, "docs/benchmarks/sdk-lines.md")
# Published versions of the SDKs of E2B that the programs are written for.
E2B = {"typescript": "2.51.0", "python": "2.63.0"}
LANGUAGES = {"typescript": "ts", "python": "py"}
TITLES = {"typescript": "TypeScript", "python": "Python"}

# Tasks, and what the programs do differently.
TASKS = {
    "run": ("Create a sandbox, run a command, delete the sandbox", None),
    "stream": (
        "Print the output of a build while it runs, then its exit code",
        "A nonzero exit code is an exception of the SDK of E2B. It is one here only with `check`.",
    ),
    "files": (
        "Write and read a file",
        "The SDK of E2B makes missing directories without being asked.",
    ),
    "upload": (
        "Upload a directory, run its tests",
        "Here it is one archive in one request, with modes, symlinks and empty directories. There are only regular files "
        "there, read into memory, and their modes are lost.",
    ),
    "port": (
        "Start an HTTP server, show its page to somebody without a key",
        "There the URL is public as long as the sandbox lives, by default. Here it has a secret, and can expire.",
    ),
    "pause": (
        "Pause and resume a sandbox",
        "There the memory is kept on disk, and processes go on. Here the files are; `keep: 'memory'` freezes processes in "
        "memory instead.",
    ),
    "fork": (
        "Run a command in each of five forks",
        "There forks have the processes and the memory of their origin, and each may fail alone. Here they have its files, "
        "and all of them start or none.",
    ),
    "restore": (
        "Keep a state, break it, go back",
        "There going back is another sandbox, with another id, from a snapshot of the whole machine. Here the same sandbox "
        "gets its files back.",
    ),
    "terminal": (
        "Type into a terminal, print what it shows",
        "The terminal here connects again after a lost connection.",
    ),
    "merge": (
        "Merge the work of two agents",
        "The SDK of E2B has no projects and no merges.",
    ),
}

FUNCTION = {
    "typescript": re.compile(r"^export async function (\w+)\([^\n]*\{\n(.*?)^\}", re.M | re.S),
    "python": re.compile(r"^def (\w+)\(.*:\n((?:(?: .*)?\n)+)", re.M),
}
COMMENT = {"typescript": "//", "python": "#"}


def main(words, usage):
    if not set(words) <= {"--check", "--types"}:
        print(usage, file=sys.stderr)
        return 0 if set(words) <= {"-h", "--help"} else 2
    text = page()
    if "--check" in words:
        with open(PAGE, encoding="utf-8") as file:
            if file.read() == text:
                return 0
        print("error: docs/benchmarks/sdk-lines.md is stale\nhint: run bench/sdk-lines", file=sys.stderr)
        return 1
    if "--types" in words:
        check_types()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


def read_programs(sdk, language):
    """Returns the bodies of the functions of a file, without indentation, by name."""
    with open(os.path.join(SOURCES, f"{sdk}.{LANGUAGES[language]}"), encoding="utf-8") as file:
        found = FUNCTION[language].findall(file.read())
    return {name: re.sub("^    ", "", body, flags=re.M).rstrip() + "\n" for name, body in found}


def count_lines(body, language):
    """Returns the number of lines that are neither blank nor a comment."""
    lines = (line.strip() for line in body.splitlines())
    return sum(bool(line) and not line.startswith(COMMENT[language]) for line in lines)


def page():
    """Returns the text of the page. Fails if a program is missing."""
    programs = {(sdk, language): read_programs(sdk, language) for sdk in ("workspace", "e2b") for language in LANGUAGES}
    for language in LANGUAGES:
        assert list(programs["workspace", language]) == list(TASKS), language
        assert list(programs["e2b", language]) == [task for task in TASKS if task != "merge"], language
    lines = [
        "# SDKs: lines of code beside E2B",
        "",
        "Made by `bench/sdk-lines`; do not edit.",
        "",
        "Ten small programs, written twice: with the [SDK for TypeScript](../../sdk-typescript/README.md) or "
        "[Python](../../sdk-python/README.md) of Elevo Workspace, and with the SDK that E2B publishes "
        f"(`e2b` {E2B['typescript']} on npm, {E2B['python']} on PyPI).",
        "",
        "- Counted are the lines of a program without blank lines, comments and imports. Formatters (Prettier, Ruff, both "
        "with 120 columns) broke the lines.",
        "- The programs with Elevo Workspace are run by the tests of the SDKs. Those with E2B need an account: "
        "`bench/sdk-lines --types` checks their types with the published packages, and nobody has run them.",
        "- Both SDKs take the address and the key from the environment.",
        "- Fewer lines are not a better SDK. The notes say where two programs do not do the same.",
        "",
        "| program | Workspace, TypeScript | E2B, TypeScript | Workspace, Python | E2B, Python |",
        "|---|---:|---:|---:|---:|",
    ]
    totals = dict.fromkeys(programs, 0)
    for task, (title, _) in TASKS.items():
        cells = []
        for language in LANGUAGES:
            for sdk in ("workspace", "e2b"):
                body = programs[sdk, language].get(task)
                cells.append("not available" if body is None else str(count_lines(body, language)))
                if task in programs["e2b", language]:
                    totals[sdk, language] += count_lines(body, language)
        lines.append(f"| [{title}](#{task}) | {' | '.join(cells)} |")
    sums = [f"**{totals[sdk, language]}**" for language in LANGUAGES for sdk in ("workspace", "e2b")]
    lines.append(f"| **The nine that both can do** | {' | '.join(sums)} |")
    lines += [
        "",
        "In TypeScript, most of the difference is `await using`: a sandbox of E2B has to be killed in a `finally`. In Python, "
        "directories, exit codes and forks take fewer lines here, and terminals take fewer there.",
        "",
    ]
    for task, (title, note) in TASKS.items():
        lines += [f"## {task[0].upper()}{task[1:]}", "", f"{title}." + (f" {note}" if note else ""), ""]
        for language in LANGUAGES:
            for sdk, name in (("workspace", "Elevo Workspace"), ("e2b", "E2B")):
                body = programs[sdk, language].get(task)
                if body is not None:
                    lines += [f"{TITLES[language]}, {name}:", "", f"```{language}", body + "```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def check_types():
    """Installs the published SDKs of E2B, and checks the types of the programs that use them."""
    directory = os.path.join(bench_directory(), "e2b")
    modules = os.path.join(ROOT, "sdk-typescript/node_modules")
    python = os.path.join(directory, "venv/bin/python")
    os.makedirs(directory, exist_ok=True)
    call = lambda *words: subprocess.run(words, check=True, cwd=directory)  # noqa: E731
    with open(os.path.join(directory, "package.json"), "w", encoding="utf-8") as file:
        file.write('{"private": true, "type": "module"}\n')
    call("npm", "install", "--silent", "--no-audit", "--no-fund", f"e2b@{E2B['typescript']}")
    call(sys.executable, "-m", "venv", "venv")
    call(python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", f"e2b=={E2B['python']}")
    # Packages are found from the directory of a program.
    for language, ending in LANGUAGES.items():
        with open(os.path.join(SOURCES, f"e2b.{ending}"), encoding="utf-8") as file:
            source = file.read()
        with open(os.path.join(directory, f"programs_{language}.{ending}"), "w", encoding="utf-8") as file:
            file.write(source)
    options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,dom"]
    types = ["--typeRoots", os.path.join(modules, "@types"), "--types", "node"]
    call("node", os.path.join(modules, "typescript/bin/tsc"), *options, *types, "programs_typescript.ts")
    mypy = os.path.join(ROOT, "sdk-python/.venv/bin/mypy")
    call(mypy, "--strict", "--no-error-summary", "--python-executable", python, "programs_python.py")
