"""Threads: work runs without the GIL, and shared objects are safe."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List

from workspace_state import Store, StoreClosedError


def test_other_threads_continue_during_a_long_commit(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("large", random.Random(1).randbytes(100 << 20))
    ticks: List[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    begun = time.perf_counter()
    tree.commit()
    ended = time.perf_counter()
    stop.set()
    ticker.join()
    # A commit that kept the GIL would let none through.
    during = sum(begun < moment < ended for moment in ticks)
    assert during >= 10, f"{during} ticks in {ended - begun:.3f} s"


def test_threads_share_a_tree_and_a_store(store: Store) -> None:
    tree = store.empty_tree()

    def work(number: int) -> None:
        for step in range(50):
            tree.write(f"{number}/{step}", str(step))
            clone = tree.clone()
            clone.commit(durability="buffered")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(store.snapshots.list()) == 400
    assert sorted(entry.name for entry in tree.list()) == [str(number) for number in range(8)]
    assert all(len(tree.list(str(number))) == 50 for number in range(8))


def test_a_call_waits_for_another_thread_without_blocking_the_rest(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("large", random.Random(2).randbytes(50 << 20))
    with ThreadPoolExecutor(2) as pool:
        commit = pool.submit(tree.commit)
        clones = [pool.submit(tree.clone) for _ in range(10)]
        assert all(clone.result().exists("large") for clone in clones)
        assert commit.result().id


def test_closing_waits_for_calls_and_never_breaks_them(tmp_path: Path) -> None:
    for _ in range(10):
        store = Store(tmp_path / "store")
        tree = store.empty_tree()
        started = threading.Barrier(5)

        def work(number: int, tree: object = tree, started: threading.Barrier = started) -> int:
            done = 0
            started.wait()
            try:
                while True:
                    clone = tree.clone()  # type: ignore[attr-defined]
                    clone.write(f"{number}", str(done))
                    clone.commit(durability="buffered")
                    done += 1
            except StoreClosedError:
                return done

        with ThreadPoolExecutor(4) as pool:
            counts = [pool.submit(work, number) for number in range(4)]
            started.wait()
            time.sleep(0.02)
            store.close()
            total = sum(count.result() for count in counts)
        with Store(tmp_path / "store", create=False) as again:
            made = again.snapshots.list()
            assert len(made) == total
            again.snapshots.delete(made)
