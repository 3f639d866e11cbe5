"""Ten small programs with the SDK of Elevo Workspace. `e2b.py` has the same, and `bench/sdk-lines` counts lines."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import httpx

from workspace_sdk.sync import WorkspaceClient

BUILD = "echo compiling; echo warning >&2; exit 3"
show = partial(print, end="", flush=True)


def run() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        print(sandbox.process.run("echo hello", check=True).stdout)


def stream() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        result = sandbox.process.run(BUILD, on_stdout=show, on_stderr=show)
        print(f"exit code {result.exit_code}")


def files() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        sandbox.files.write("notes/a.txt", "hello", mkdirs=True)
        print(sandbox.files.read("notes/a.txt"))


def upload(directory: Path) -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        sandbox.files.upload(directory, "project")
        print(sandbox.process.run("cd project && sh tests/run.sh", check=True).stdout)


def port() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        sandbox.process.start("python3 -m http.server 8000", timeout=0)
        url = sandbox.ports.preview(8000).path_url
        while (page := httpx.get(url)).status_code == 502:
            time.sleep(0.1)
        print(page.text)


def pause() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        sandbox.files.write("state", "kept")
        sandbox.pause()
        sandbox.resume()
        print(sandbox.files.read("state"))


def fork() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        sandbox.files.write("task.sh", "echo fork $1")
        for number, fork in enumerate(sandbox.fork(5).sandboxes):
            with fork:
                print(fork.process.run(f"sh task.sh {number}", check=True).stdout)


def restore() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        sandbox.files.write("state", "good")
        good = sandbox.commit(message="it works").snapshot
        sandbox.files.write("state", "broken")
        sandbox.restore(good.id)
        print(sandbox.files.read("state"))


def terminal() -> None:
    with WorkspaceClient() as client, client.sandbox.create() as sandbox:
        with sandbox.pty.create(cols=80, rows=24) as terminal:
            terminal.write("stty size; exit\n")
            for event in terminal:
                if event.type == "output":
                    show(event.data)


def merge() -> None:
    with WorkspaceClient() as client:
        client.projects.create(name="guide")
        with client.sandbox.create(project="guide", agent="writer") as writer:
            with client.sandbox.create(project="guide", agent="editor") as editor:
                writer.files.write("index.md", "written by the writer")
                editor.files.write("style.md", "written by the editor")
                writer.complete(message="the text", wait=30)
                editor.complete(message="the style", wait=30)
        print(client.projects.read("guide", "index.md"), client.projects.read("guide", "style.md"))
