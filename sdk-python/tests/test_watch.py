"""Watches of files."""

from __future__ import annotations

import threading

from workspace_sdk.sync import FileChangedEvent, FileRenamedEvent, WorkspaceClient


def test_a_watch_yields_changes_until_its_directory_is_removed(client: WorkspaceClient) -> None:
    with client.sandbox.create(template="base") as sandbox:
        sandbox.files.mkdir("watched")
        has_begun = threading.Event()

        def change() -> None:
            # The watch has begun when a change is seen; until then, more are made.
            number = 0
            while not has_begun.is_set():
                number += 1
                sandbox.files.write(f"watched/{number}", "x")

        writer = threading.Thread(target=change)
        writer.start()
        events = []
        for event in sandbox.files.watch("watched", recursive=True):
            events.append(event)
            if not has_begun.is_set():
                has_begun.set()
                writer.join()
                sandbox.files.write("watched/new", "x")
                sandbox.files.move("watched/1", "watched/renamed")
            if event.type == "renamed":
                sandbox.files.remove("watched", recursive=True)
        assert FileChangedEvent("created", "new", directory=False) in events
        assert FileRenamedEvent("renamed", from_="1", directory=False) in events
        last = events[-1]
        assert last.type == "ended"
        assert "removed" in last.reason
