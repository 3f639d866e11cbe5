"""The programs of `workspace.py` with the SDK of E2B, as it is published. They need an account, so they are not run."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import httpx
from e2b import CommandExitException, CommandResult, PtySize, Sandbox
from e2b.sandbox.filesystem.filesystem import WriteEntry

BUILD = "echo compiling; echo warning >&2; exit 3"
show = partial(print, end="", flush=True)


def run() -> None:
    with Sandbox.create() as sandbox:
        print(sandbox.commands.run("echo hello").stdout)


def stream() -> None:
    with Sandbox.create() as sandbox:
        try:
            result: CommandResult = sandbox.commands.run(BUILD, on_stdout=show, on_stderr=show)
        except CommandExitException as error:
            result = error
        print(f"exit code {result.exit_code}")


def files() -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("notes/a.txt", "hello")
        print(sandbox.files.read("notes/a.txt"))


def upload(directory: Path) -> None:
    with Sandbox.create() as sandbox:
        paths = [path for path in directory.rglob("*") if path.is_file()]
        names = [path.relative_to(directory).as_posix() for path in paths]
        entries = [WriteEntry(path=f"project/{name}", data=path.read_bytes()) for name, path in zip(names, paths)]
        sandbox.files.write_files(entries)
        print(sandbox.commands.run("cd project && sh tests/run.sh").stdout)


def port() -> None:
    with Sandbox.create() as sandbox:
        sandbox.commands.run("python3 -m http.server 8000", background=True, timeout=0)
        url = f"https://{sandbox.get_host(8000)}"
        while (page := httpx.get(url)).status_code == 502:
            time.sleep(0.1)
        print(page.text)


def pause() -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("state", "kept")
        sandbox.pause()
        sandbox.connect()
        print(sandbox.files.read("state"))


def fork() -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("task.sh", "echo fork $1")
        for number, fork in enumerate(sandbox.fork(count=5)):
            if isinstance(fork, Exception):
                raise fork
            with fork:
                print(fork.commands.run(f"sh task.sh {number}").stdout)


def restore() -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("state", "good")
        good = sandbox.create_snapshot()
        sandbox.files.write("state", "broken")
        with Sandbox.create(good.snapshot_id) as restored:
            print(restored.files.read("state"))


def terminal() -> None:
    with Sandbox.create() as sandbox:
        terminal = sandbox.pty.create(PtySize(cols=80, rows=24))
        sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
        terminal.wait(on_pty=lambda data: show(data.decode(errors="replace")))
