"""Several processes, of which each has the store open, and forks."""

from __future__ import annotations

from pathlib import Path

from programs import finish, run, start
from workspace_state import Expect, Store

COUNT_UP = """
import sys
from workspace_sdk.errors import PreconditionFailedError
from workspace_state import Store

with Store(sys.argv[1], create=False) as store:
    for _ in range(int(sys.argv[2])):
        while True:
            head = store.references.get("head")
            tree = store.restore(head)
            tree.write("count", str(int(tree.read("count")) + 1))
            try:
                tree.commit(durability="buffered", references={"head": head})
                break
            except PreconditionFailedError as error:
                assert error.retryable
"""

FORK = """
import os, sys
from workspace_state import ForkedProcessError, Store

store = Store(sys.argv[1])
tree = store.empty_tree()
tree.write("file", "x")
tree.commit()
child = os.fork()
if child == 0:
    failures = 0
    for call in (tree.clone, tree.commit, store.snapshots.list, store.close, lambda: Store(sys.argv[1]),
                 lambda: Store(sys.argv[1] + "-other"), lambda: tree.read("file"), lambda: tree.base):
        try:
            call()
        except ForkedProcessError as error:
            failures += error.name == "STORE_FORKED"
    closed = store.closed
    del tree, store
    os._exit(failures if closed else 99)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 8, status
tree.write("file", "y")
tree.commit()
# The child has neither closed the index nor released its lock.
assert open(os.path.join(sys.argv[1], "boot")).read().strip() != "clean"
store.close()
assert open(os.path.join(sys.argv[1], "boot")).read().strip() == "clean"
"""

FORK_BEFORE_OPEN = """
import os, sys
import workspace_state

child = os.fork()
if child == 0:
    with workspace_state.Store(sys.argv[1]) as store:
        store.empty_tree().commit()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
assert len(workspace_state.Store(sys.argv[1]).snapshots.list()) == 1
"""

KILLED = """
import os, signal, sys
from workspace_state import Store

store = Store(sys.argv[1])
tree = store.empty_tree()
tree.write("file", "x")
tree.commit(durability="buffered")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_two_processes_commit_to_one_store(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("count", "0")
    tree.commit(references={"head": Expect.ABSENT})
    for process in [start(COUNT_UP, store.path, 100) for _ in range(2)]:
        finish(process)
    assert store.restore("head").read("count") == "200"
    assert len(store.snapshots.list()) == 201


def test_a_forked_child_cannot_harm_the_store(tmp_path: Path) -> None:
    run(FORK, tmp_path / "store")
    with Store(tmp_path / "store", create=False) as store:
        assert len(store.snapshots.list()) == 2


def test_a_child_that_was_forked_before_opens_stores(tmp_path: Path) -> None:
    run(FORK_BEFORE_OPEN, tmp_path / "store")


def test_a_buffered_commit_survives_a_killed_process(tmp_path: Path) -> None:
    process = start(KILLED, tmp_path / "store")
    process.communicate(timeout=60)
    assert process.returncode == -9
    with Store(tmp_path / "store", create=False) as store:
        (snapshot,) = store.snapshots.list()
        assert store.restore(snapshot).read("file") == "x"
