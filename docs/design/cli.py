#!/usr/bin/env python3
"""Records the commands and errors that people meet most, beside those of git and uv, and writes cli.md.

    docs/design/cli.py --workspace target/release/workspace --uv "$(command -v uv)"

It needs a running server (`WORKSPACE_SERVER` and, unless the key is found, `WORKSPACE_API_KEY`), makes a temporary
directory for everything else, and removes the sandbox that it made; its two forks expire after a minute. Ids, times and
paths of that directory are replaced, so that two recordings differ only where the programs do.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")
LINES = 8

HEAD = """# Design: the command line

This page compares the most common commands and errors with those of git and uv. [`cli.py`](cli.py) records it. Read it
before you change a message, so that similar messages have the same form everywhere. `$?` is the exit status if it is
not 0, and `…` replaces parts of ids and omitted lines.

## Rules

- A command that creates an object prints only its id, so that `id=$(workspace …)` works.
- A command that changes an object prints nothing, or one line on stderr with counts.
- Lists are tables with headers in capitals, as in `ps` and `docker`; `--json` prints one record per line.
- An error is `error: ` and one sentence with the wrong name, then `hint: ` with a command or a setting to use. uv
  prints `error:` and a `cause:` for each cause; git prints `fatal:` and advice. We use the form of uv with advice.
- For a mistyped command or option, the error suggests the most similar one and shows the usage. The status is 2, as in
  uv.
- Exit statuses of programs are passed on unchanged; 125 is a failure of `workspace` itself, as in `docker run`.
- The first command of a new user works: `workspace run` needs no server. If none is configured and none answers at the
  default address, it runs the program in a temporary local sandbox and says so in one line. We do not start a server in
  the background: it would outlive the command, hold a port, a data directory and a key that the user did not ask for,
  and its log and its end would need commands of their own. Options whose effect outlives the command are refused with
  a hint, because a sandbox without a server cannot be found again. A configured server is never ignored: if it cannot
  be reached, that is an error.
- Every operation of the API has a command, or a reason why it has none; a test
  ([`operations.rs`](../../crates/cli/tests/cli/operations.rs)) has the list. Commands that share access print one URL,
  with its expiry on stderr, because a URL is what you pass on; the parts of it are in `--json`. A command `files sign`
  with the signature alone was rejected for that reason. `terminal create` stands beside `shell`, which attaches your
  terminal and cannot hand it to a page. Snapshots on a server are `log --server` and `rm --server`, as for `ref` and
  `export`, and not a second group of commands for the same thing.

"""

# What is shown, our command, git's and uv's. A command without a peer has none.
COMMANDS = [
    ("Run a program without risk", "workspace try -- sh -c 'echo new > made.txt' < /dev/null", None, None),
    ("Run a program", "workspace run -- echo hello", None, "uv run --no-project -- echo hello"),
    ("Create a workspace", "workspace sandbox create --name work --dir app", "git worktree add ../tree -b work",
     "uv venv ../venv"),
    ("Run a program in it", "workspace exec work -- sh -c 'echo more >> notes.txt; wc -l notes.txt'",
     "git -C ../tree status --short",
     "uv run --no-project --python ../venv/bin/python -- python -c 'print(1)'"),
    ("List workspaces", "workspace ps", "git worktree list", "uv tool list"),
    ("List changes", "workspace sandbox changes work", "git status --short", None),
    ("Show changes", "workspace sandbox diff work", "git diff", None),
    ("Commit", "workspace sandbox commit work -m 'more notes'", "git commit -qam 'more notes'", None),
    ("Fork", "workspace sandbox fork work --count 2 --timeout 1m", "git branch other", None),
    ("Show details", "workspace sandbox get work", "git show --stat", None),
    ("Show resource usage", "workspace sandbox stats work", "git count-objects", "uv cache dir"),
    ("Output of commands", "workspace logs work --tail 2", None, None),
    ("Copy out", "workspace cp work:notes.txt out.txt", None, None),
    ("Remove", "workspace sandbox rm work", "git worktree remove ../tree", None),
    ("Snapshot a directory", "workspace snapshot app -m 'first version' --ref main",
     "git commit -q --allow-empty -m 'first version'", None),
    ("History", "workspace log --ref main", "git log --oneline", None),
    ("Difference in numbers", "echo x >> app/notes.txt; workspace diff main app --stat",
     "git diff --stat HEAD~2", None),
    ("Check out", "workspace checkout main copy", "git checkout other", None),
    ("List a directory", "workspace ls main", "git ls-tree --name-only HEAD", None),
    ("Collect garbage", "workspace gc", "git gc --quiet", "uv cache prune"),
]
ERRORS = [
    ("A command that does not exist", "workspace snapshto app", "git comit", "uv rnu"),
    ("An option that does not exist", "workspace log --ferf", "git log --ferf", "uv venv --ferf"),
    ("A name that does not exist", "workspace show nothing", "git show nothing",
     "uv pip show --python ../venv/bin/python nothing"),
    ("A path that does not exist", "workspace cat main nothing.txt", "git show HEAD:nothing.txt",
     "uv pip install -r nothing.txt"),
    ("No store, no repository, no project", "workspace --store ./none log", "git -C / log", "uv sync --directory /"),
    ("No server", "workspace ps --server http://127.0.0.1:1", "git ls-remote http://127.0.0.1:1/x",
     "uv pip install --python ../venv/bin/python --index-url http://127.0.0.1:1 nothing"),
    ("A sandbox that does not exist", "workspace exec nothing -- true", None, None),
    ("A program that does not exist", "workspace run -- nothing", "git -c alias.x='!nothing' x",
     "uv run --no-project -- nothing"),
    ("Local edits in the way", "echo edit >> copy/notes.txt; workspace checkout main~1 copy",
     "echo edit >> notes.txt; git checkout HEAD~1", None),
    ("A missing template", "workspace run --template python:3.12 -- true", None,
     "uv run --no-project --python 3.1 -- true"),
]
SETUP = """
git init -q -b main . && git config user.name Ada && git config user.email ada@example.org
mkdir app && echo first > app/notes.txt && echo first > notes.txt && git add notes.txt && git commit -qm first
echo more >> notes.txt
"""
# Between commands and errors: a second snapshot, whose file differs.
BETWEEN = """
workspace snapshot app --ref main && workspace checkout main copy && echo z >> notes.txt && git commit -qam z
"""


def recorded(command, directory, environment):
    """What a shell prints for a command, in the order of both streams."""
    done = subprocess.run(["bash", "-c", command], cwd=directory, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    lines = plain(done.stdout, directory).splitlines()
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], "…"]
    if done.returncode:
        lines.append(f"$? = {done.returncode}")
    return "\n".join([f"$ {command}", *lines])


def plain(text, directory):
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).replace(str(directory.parent), "/home/ada")
    text = re.sub(r"\b(sbx-|cmd-)?[0-9a-f]{32,40}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", shortened, text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( [+-]\d\d:?\d\d)?", "2026-11-17 12:00:00", text)
    text = re.sub(r"interpreter at: \S+", "interpreter at: /usr/bin/python3", text)
    return "\n".join(line[:117] + "…" if len(line) > 118 else line for line in text.rstrip("\n").splitlines())


def shortened(found):
    """An id without its end, as wide as before where columns follow."""
    short = found[0][:12] + "…"
    follows = found.string[found.end() : found.end() + 2]
    return short.ljust(len(found[0])) if follows == "  " else short


def section(title, commands, directory, environment):
    yield f"## {title}\n"
    for name, *commands_of_tools in commands:
        yield f"### {name}\n"
        for command in commands_of_tools:
            if command:
                yield f"```console\n{recorded(command, directory, environment)}\n```\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", required=True)
    parser.add_argument("--uv", required=True)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="workspace-cli-"))
    programs, directory = home / "bin", home / "project"
    programs.mkdir()
    directory.mkdir()
    for name in ("workspace", "uv"):
        (programs / name).symlink_to(Path(getattr(given, name)).resolve())
    kept = {name: value for name, value in os.environ.items() if name.startswith("WORKSPACE_") or name == "DATA_DIR"}
    environment = {**kept, "HOME": str(home), "USER": "ada", "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1",
                   "PATH": f"{programs}:{os.environ['PATH']}", "UV_PYTHON_DOWNLOADS": "never"}
    try:
        recorded(SETUP, directory, environment)
        tools = ("workspace", "git", "uv")
        versions = [recorded(f"{tool} --version", directory, environment).splitlines()[1] for tool in tools]
        parts = [HEAD + f"Recorded with {', '.join(versions)}.\n"]
        parts += section("Commands", COMMANDS, directory, environment)
        recorded(BETWEEN, directory, environment)
        parts += section("Errors", ERRORS, directory, environment)
        PAGE.write_text("\n".join(parts).rstrip("\n") + "\n")
    finally:
        recorded("workspace sandbox rm work", directory, environment)
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
