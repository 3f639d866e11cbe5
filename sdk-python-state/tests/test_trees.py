"""Virtual trees: reading, writing, clones, commits."""

from __future__ import annotations

import copy
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Dict, Set

import pytest

from workspace_sdk.errors import InvalidRequestError, PreconditionFailedError, SnapshotNotFoundError
from workspace_state import Expect, Store, VirtualTree


def names(tree: VirtualTree, path: str = "") -> Set[str]:
    return {entry.name for entry in tree.list(path)}


def test_a_tree_is_read_as_it_was_written(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("src/main.py", "print('é')\n")
    tree.append("src/main.py", b"# end\n")
    tree.mkdir("empty")
    tree.symlink("link", "src/main.py")
    tree.chmod("src/main.py", 0o755)
    assert tree.read("src/main.py") == "print('é')\n# end\n"
    assert tree.read_bytes("src/main.py", start=1, end=5) == b"rint"
    assert tree.read_bytes("src/main.py", start=1000) == b""
    assert tree.read_bytes("src/main.py", start=3, end=1) == b""
    assert [(entry.name, entry.kind) for entry in tree.list()] == [
        ("empty", "directory"),
        ("link", "symlink"),
        ("src", "directory"),
    ]
    assert tree.read_link("link") == "src/main.py"
    stat = tree.stat("src/main.py")
    assert (stat.kind, stat.mode, stat.size) == ("file", 0o755, 18)
    assert stat.modified_ns is not None
    tree.move("src", "lib")
    assert not tree.exists("src")
    assert tree.exists("lib/main.py")
    tree.remove("lib")
    assert names(tree) == {"empty", "link"}


@pytest.mark.parametrize("content", [b"x\0y", bytearray(b"x\0y"), memoryview(b"-x\0y-")[1:4], "x\0y"])
def test_content_is_any_kind_of_bytes_or_text(store: Store, content: bytes) -> None:
    tree = store.empty_tree()
    tree.write("file", content)
    assert tree.read_bytes("file") == b"x\0y"


def test_content_of_another_type_is_refused(store: Store) -> None:
    with pytest.raises(TypeError):
        store.empty_tree().write("file", 5)  # type: ignore[arg-type]


def test_reading_binary_content_as_text_fails(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("file", b"\xff")
    with pytest.raises(InvalidRequestError, match="`file` is not text"):
        tree.read("file")


def test_clones_are_independent(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("shared", "old")
    clones = [tree.clone() for _ in range(100)]
    for number, clone in enumerate(clones):
        clone.write("shared", str(number))
        clone.write(f"own/{number}", "")
    clones[0].remove("shared")
    assert tree.read("shared") == "old"
    assert names(tree) == {"shared"}
    assert not clones[0].exists("shared")
    for number, clone in enumerate(clones[1:], 1):
        assert clone.read("shared") == str(number)
        assert names(clone, "own") == {str(number)}
    assert copy.copy(tree).read("shared") == "old"


def test_a_clone_outlives_its_original_and_a_commit(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("file", "first")
    clone = tree.clone()
    first = tree.commit()
    del tree
    clone.write("file", "second")
    second = clone.commit()
    assert (first.parents, second.parents) == ([], [])
    assert store.restore(first).read("file") == "first"
    assert store.restore(second).read("file") == "second"


@pytest.mark.parametrize("durability", ["synced", "buffered"])
def test_a_commit_describes_its_snapshot(store: Store, durability: str) -> None:
    tree = store.empty_tree()
    first = tree.commit()
    tree.write("file", "x")
    other = store.empty_tree().commit()
    snapshot = tree.commit(
        "a message",
        durability=durability,  # type: ignore[arg-type]
        author="ada",
        labels={"kind": "test"},
        parents=[first, other.id],
        references={"best": Expect.ABSENT},
    )
    assert (snapshot.message, snapshot.author, snapshot.labels) == ("a message", "ada", {"kind": "test"})
    assert snapshot.parents == [first.id, other.id]
    assert abs(snapshot.time - datetime.now(timezone.utc)) < timedelta(minutes=1)
    assert tree.base == snapshot.id
    assert store.snapshots.get(snapshot.id) == snapshot
    assert store.snapshots.get("best") == snapshot
    assert store.references.get("best") == snapshot.id


def test_a_commit_moves_references_only_as_expected(store: Store) -> None:
    tree = store.empty_tree()
    first = tree.commit(references={"head": Expect.ABSENT})
    tree.write("file", "x")
    with pytest.raises(PreconditionFailedError) as caught:
        tree.commit(references={"head": Expect.ABSENT})
    assert (caught.value.code, caught.value.name) == (4203, "PRECONDITION_FAILED")
    assert len(store.snapshots.list()) == 1
    second = tree.commit(references={"head": first})
    assert store.references.list() == [("head", second.id)]
    third = tree.commit(references={"head": Expect.ANYTHING})
    store.references.set("head", second, expect=third.id)
    store.references.delete("head", expect=second)
    assert store.references.list() == []


def test_an_unknown_durability_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequestError, match="synced"):
        store.empty_tree().commit(durability="sync")  # type: ignore[arg-type]


def test_equal_trees_have_equal_ids(store: Store) -> None:
    one, other = store.empty_tree(), store.empty_tree()
    one.write("a", "1")
    one.write("b", "2")
    other.write("b", "2")
    other.write("a", "1")
    assert one.tree_id() == other.tree_id()
    first, second = one.commit(), other.commit()
    assert first.tree == second.tree == one.tree_id()
    assert set(store.snapshots.with_tree(first.tree)) == {first.id, second.id}


def test_changes_are_relative_to_the_base(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("kept", "1")
    tree.write("old/name", "moved")
    assert {change.path for change in tree.changes()} == {"kept", "old", "old/name"}
    tree.commit()
    assert tree.changes() == []
    tree.move("old/name", "new")
    tree.write("kept", "2")
    changes = {change.path: (change.change, change.renamed_from) for change in tree.changes()}
    assert changes == {"kept": ("modified", None), "new": ("renamed", "old/name")}
    assert len(store.snapshots.list()) == 1, "nothing is committed"


def test_history_and_prefixes_of_ids(store: Store) -> None:
    tree = store.empty_tree()
    made = [tree.commit(str(number), durability="buffered") for number in range(4)]
    assert [snapshot.message for snapshot in store.snapshots.history(made[3])] == ["3", "2", "1", "0"]
    assert len(store.snapshots.history(made[3], limit=2)) == 2
    with pytest.raises(SnapshotNotFoundError) as caught:
        store.restore("no-such-name")
    assert caught.value.details == {"snapshot": "no-such-name"}
    prefix = made[0].id[:8]
    with pytest.raises(InvalidRequestError) as ambiguous:
        store.restore(prefix)
    assert made[0].id in ambiguous.value.details["snapshots"]


def test_deleted_snapshots_are_collected(store: Store) -> None:
    tree = store.empty_tree()
    kept = tree.commit()
    tree.write("large", random.Random(1).randbytes(1 << 20))
    deleted = tree.commit()
    del tree
    store.snapshots.delete([deleted])
    assert store.snapshots.collect_garbage().dead_objects > 0
    assert [snapshot.id for snapshot in store.snapshots.list()] == [kept.id]
    with pytest.raises(SnapshotNotFoundError):
        store.restore(deleted)


def test_random_operations_give_what_a_dictionary_gives(store: Store, tmp_path: Path) -> None:
    """The tree, its differences and its checkouts agree with a plain model."""
    chance = random.Random(7)
    model: Dict[str, bytes] = {}
    tree, committed, before = store.empty_tree(), dict(model), store.empty_tree().commit()
    for _ in range(20):
        for _ in range(chance.randrange(1, 40)):
            path = f"d{chance.randrange(5)}/e{chance.randrange(5)}/f{chance.randrange(5)}"
            if chance.random() < 0.3 and path in model:
                tree.remove(path)
                del model[path]
            else:
                model[path] = chance.randbytes(chance.choice([0, 10, 5000, 100_000]))
                tree.write(path, model[path])
        snapshot = tree.commit(durability="buffered")
        differences = {difference.path: difference for difference in store.snapshots.diff(before, snapshot)}
        files = {path for path, found in differences.items() if "file" in (_kind(found.old), _kind(found.new))}
        changed = {path for path in {*model, *committed} if model.get(path) != committed.get(path)}
        renamed = {found.renamed_from for found in differences.values() if found.renamed_from}
        assert files | renamed == changed
        store.checkout(snapshot, tmp_path / "checkout")
        assert _files(tmp_path / "checkout") == model
        committed, before = dict(model), snapshot


def _kind(stat: object) -> object:
    return getattr(stat, "kind", None)


def _files(root: Path) -> Dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
