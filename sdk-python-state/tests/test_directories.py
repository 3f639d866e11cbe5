"""Directories of the file system: snapshots and checkouts."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Optional

import pytest

from workspace_sdk.errors import ConflictError
from workspace_state import LocalChangesError, StateError, Store


def test_a_directory_is_snapshotted_and_checked_out(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "run.sh").write_text("echo\n")
    (source / "run.sh").chmod(0o755)
    (source / "sub" / "link").symlink_to("../run.sh")
    os.mkfifo(source / "fifo")
    report = store.snapshot_directory(source, "from files", labels={"a": "b"}, references={})
    assert (report.files, report.files_read, report.bytes) == (1, 1, 5)
    assert [(skipped.path, skipped.reason) for skipped in report.skipped] == [("fifo", "a named pipe")]
    assert (report.skipped_count, report.snapshot.labels) == (1, {"a": "b"})
    again = store.snapshot_directory(source, parents=[report.snapshot])
    assert again.snapshot.parents == [report.snapshot.id]
    assert again.snapshot.tree == report.snapshot.tree

    target = tmp_path / "target"
    written = store.checkout(report.snapshot, target, sync=True)
    assert (written.written, written.bytes) == (3, 5)
    assert (target / "sub" / "link").read_text() == "echo\n"
    assert os.access(target / "run.sh", os.X_OK)


def test_ignore_files_are_honoured_unless_told_otherwise(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / ".workspaceignore").write_text("*.log\n")
    (source / "a.log").write_text("")
    assert store.snapshot_directory(source).files == 1
    assert store.snapshot_directory(source, ignore_files=False).files == 2


def test_a_checkout_never_loses_local_changes(store: Store, tmp_path: Path) -> None:
    tree, target = store.empty_tree(), tmp_path / "target"
    tree.write("file", "1")
    first = tree.commit()
    tree.write("file", "2")
    second = tree.commit()
    store.checkout(first, target)
    (target / "file").write_text("edited")
    with pytest.raises(LocalChangesError) as caught:
        store.checkout(second, target)
    assert caught.value.details == {"paths": ["file"]}
    assert (target / "file").read_text() == "edited"
    store.checkout(second, target, force=True)
    assert (target / "file").read_text() == "2"


def test_a_checkout_into_another_directory_with_files_fails(store: Store, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").write_text("")
    with pytest.raises(ConflictError, match="not empty"):
        store.checkout(store.empty_tree().commit(), tmp_path / "target")


def test_a_checkout_never_follows_a_symlink_out_of_its_directory(store: Store, tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    tree = store.empty_tree()
    tree.symlink("way", str(outside))
    store.checkout(tree.commit(), target)
    tree.remove("way")
    tree.write("way/file", "inside")
    (target / "way").unlink()
    (target / "way").symlink_to(outside)
    store.checkout(tree.commit(), target, force=True)
    assert os.listdir(outside) == []
    assert (target / "way" / "file").read_text() == "inside"


def test_a_snapshot_of_a_missing_directory_fails(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="missing"):
        store.snapshot_directory(tmp_path / "missing")


def test_names_that_are_not_utf8_go_through(store: Store, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    name = os.fsdecode(b"caf\xe9")
    (source / name).write_text("x")
    snapshot = store.snapshot_directory(source).snapshot
    tree = store.restore(snapshot)
    assert [entry.name for entry in tree.list()] == [name]
    assert tree.read(name) == tree.read(b"caf\xe9") == tree.read(Path(name)) == "x"
    tree.symlink("link", name)
    assert tree.read_link("link") == name
    after = tree.commit()
    assert [difference.path for difference in store.snapshots.diff(snapshot, after)] == ["link"]
    store.checkout(after, target)
    assert os.listdir(os.fsencode(target)).count(b"caf\xe9") == 1


class Interrupted(Exception):
    pass


def test_a_signal_interrupts_a_snapshot(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with open(source / "large", "wb") as file:
        for _ in range(256):
            file.write(os.urandom(1 << 20))

    def interrupt(number: int, frame: Optional[FrameType]) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(Interrupted):
            store.snapshot_directory(source)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert store.snapshots.list() == []
