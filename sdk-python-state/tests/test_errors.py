"""Errors: classes, codes, hostile arguments, closed stores."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Callable, List, Tuple, Type, Union

import pytest

from workspace_sdk.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    PathNotFoundError,
    WorkspaceError,
)
from workspace_state import Expect, InternalError, Store, StoreClosedError, StoreDamagedError, VirtualTree

HOSTILE: List[Union[str, bytes]] = [
    "..",
    "../outside",
    "a/../../outside",
    "/../etc/passwd",
    "nul\0byte",
    b"nul\0byte",
    "n" * 256,
    "/".join("d" for _ in range(1025)),
    "\ud800",
]

CALLS: List[Callable[[VirtualTree, Union[str, bytes]], object]] = [
    lambda tree, path: tree.write(path, ""),
    lambda tree, path: tree.append(path, ""),
    lambda tree, path: tree.read(path),
    lambda tree, path: tree.read_bytes(path),
    lambda tree, path: tree.read_link(path),
    lambda tree, path: tree.remove(path),
    lambda tree, path: tree.move("file", path),
    lambda tree, path: tree.move(path, "file"),
    lambda tree, path: tree.mkdir(path),
    lambda tree, path: tree.symlink(path, "x"),
    lambda tree, path: tree.chmod(path, 0o700),
    lambda tree, path: tree.list(path),
    lambda tree, path: tree.stat(path),
    lambda tree, path: tree.exists(path),
]


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("call", CALLS)
def test_a_path_outside_the_tree_is_refused(
    store: Store, path: Union[str, bytes], call: Callable[[VirtualTree, Union[str, bytes]], object]
) -> None:
    tree = store.empty_tree()
    tree.write("file", "x")
    before = tree.tree_id()
    with pytest.raises(InvalidRequestError) as caught:
        call(tree, path)
    assert caught.value.name == "PATH_INVALID"
    assert tree.tree_id() == before


def test_paths_are_relative_to_the_root_of_the_tree(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("/etc//./passwd", "x")
    assert tree.read("etc/passwd") == "x"
    assert [entry.name for entry in tree.list("/")] == ["etc"]


def test_errors_have_the_classes_and_codes_of_the_api(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("file", "")
    tree.mkdir("directory/sub")
    cases: List[Tuple[Type[WorkspaceError], int, str, Callable[[], object]]] = [
        (PathNotFoundError, 3003, "PATH_NOT_FOUND", lambda: tree.read("missing")),
        (ConflictError, 4202, "FILE_CONFLICT", lambda: tree.read("directory")),
        (ConflictError, 4202, "FILE_CONFLICT", lambda: tree.write("file/below", "")),
        (ConflictError, 4202, "FILE_CONFLICT", lambda: tree.move("directory", "directory/sub/x")),
        (ConflictError, 4202, "FILE_CONFLICT", lambda: tree.write("", "")),
        (NotFoundError, 3012, "REFERENCE_NOT_FOUND", lambda: store.references.get("missing")),
        (NotFoundError, 3012, "REFERENCE_NOT_FOUND", lambda: store.references.delete("missing")),
        (NotFoundError, 3101, "EPISODE_NOT_FOUND", lambda: store.episodes.get("missing")),
        (InvalidRequestError, 9003, "INVALID_REQUEST", lambda: store.references.set("a..b/../c", tree.commit())),
        (InvalidRequestError, 9003, "INVALID_REQUEST", lambda: store.snapshots.with_tree("xyz")),
        (InvalidRequestError, 0, "PATH_INVALID", lambda: tree.symlink("link", "")),
    ]
    for cls, code, name, call in cases:
        with pytest.raises(cls) as caught:
            call()
        error = caught.value
        assert isinstance(error, WorkspaceError)
        assert (type(error), error.code, error.name, error.retryable) == (cls, code, name, False)
        assert error.message
        copied = pickle.loads(pickle.dumps(error))
        assert (copied.message, copied.details) == (error.message, error.details)


def test_arguments_of_other_types_and_sizes_are_refused(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("file", "abc")
    mistyped: List[Callable[[], object]] = [
        lambda: tree.read(5),  # type: ignore[arg-type]
        lambda: tree.read(None),  # type: ignore[arg-type]
        lambda: tree.commit(labels={"a": 1}),  # type: ignore[dict-item]
        lambda: tree.commit(references={"a": 1}),  # type: ignore[dict-item]
        lambda: store.restore(b"id"),  # type: ignore[arg-type]
    ]
    for call in mistyped:
        with pytest.raises(TypeError):
            call()
    too_large: List[Callable[[], object]] = [
        lambda: tree.read_bytes("file", start=-1),
        lambda: tree.read_bytes("file", start=1 << 64),
        lambda: tree.chmod("file", 1 << 16),
    ]
    for call in too_large:
        with pytest.raises(OverflowError):
            call()
    last = (1 << 64) - 1
    assert tree.read_bytes("file", start=last, end=last) == b""
    assert tree.read_bytes("file", start=last) == b""
    assert tree.read_bytes("file", start=0, end=last) == b"abc"


def test_a_missing_or_foreign_directory_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        Store(tmp_path / "missing", create=False)
    assert (caught.value.name, caught.value.details) == ("STORE_NOT_FOUND", {"path": str(tmp_path / "missing")})
    assert not (tmp_path / "missing").exists()
    (tmp_path / "file").write_text("")
    for create in (False, True):
        with pytest.raises(WorkspaceError):
            Store(tmp_path / "file", create=create)
        with pytest.raises(WorkspaceError):
            Store(tmp_path, create=create)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_closed_store_refuses_every_call(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        tree, references, episodes = store.empty_tree(), store.references, store.episodes
        snapshot = tree.commit()
        clone = tree.clone()
    assert store.closed
    store.close()
    calls: List[Callable[[], object]] = [
        store.empty_tree,
        lambda: store.restore(snapshot),
        store.sync,
        lambda: store.checkout(snapshot, tmp_path / "target"),
        store.snapshots.list,
        references.list,
        episodes.list,
        tree.clone,
        tree.commit,
        lambda: tree.write("file", ""),
        lambda: clone.read("file"),
        lambda: tree.base,
        lambda: repr(tree),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError) as caught:
            call()
        assert caught.value.name == "STORE_CLOSED"
    assert not (tmp_path / "target").exists()
    assert snapshot.id
    with Store(tmp_path / "store", create=False) as again:
        assert again.snapshots.list() == [snapshot]


def test_closing_one_of_two_handles_leaves_the_other_open(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "store"), Store(tmp_path / "store")
    tree = other.empty_tree()
    one.close()
    assert not other.closed
    tree.commit(references={"head": Expect.ANYTHING})
    other.close()


def test_damage_is_reported(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        tree = store.empty_tree()
        tree.write("file", b"content of the file " * 1000)
        snapshot = tree.commit()
    for pack in (tmp_path / "store" / "packs").iterdir():
        content = bytearray(pack.read_bytes())
        content[200 : len(content) // 2] = bytes(len(content) // 2 - 200)
        pack.write_bytes(content)
    with Store(tmp_path / "store", create=False) as store:
        with pytest.raises(StoreDamagedError) as caught:
            store.restore(snapshot).read("file")
        assert caught.value.name == "STORE_DAMAGED"


def test_a_panic_is_an_error_and_breaks_only_its_tree(tmp_path: Path) -> None:
    """Needs a build with the profile `dev`, as `test.sh` makes it."""
    with Store(tmp_path / "store") as store:
        tree = store.empty_tree()
        clone = tree.clone()
        with pytest.raises(InternalError, match="a panic of a test") as caught:
            tree._panic()  # type: ignore[attr-defined]
        assert (caught.value.code, caught.value.name) == (9001, "INTERNAL_ERROR")
        broken: List[Callable[[], object]] = [lambda: tree.read("file"), tree.clone, tree.commit]
        for call in broken:
            with pytest.raises(InternalError, match="an earlier call on this tree failed"):
                call()
        clone.write("file", "x")
        clone.commit()
    with pytest.raises(StoreClosedError):
        clone.read("file")
    with Store(tmp_path / "store", create=False) as store:
        assert len(store.snapshots.list()) == 1
