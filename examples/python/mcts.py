"""Repairs the sample of `examples/mcts` by a search whose states are virtual trees in this process, without a server.

Only the tests of the sample need files: each state is checked out into the same directory, where only the differences to
the last one are written. A state that comes again by another order of the same edits has the same tree, and is not
tested again.
"""

import math
import random
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Dict, List, Optional

from workspace_sdk import state
from workspace_sdk.errors import PathNotFoundError

SAMPLE = Path(__file__).resolve().parent.parent / "mcts" / "sample"
# Exploration constant of UCT: larger values explore more, smaller ones follow the best states.
EXPLORE = 0.7
DEPTH = 5
STEPS = 100

Edit = Callable[[state.VirtualTree], None]


def replace(path: str, old: str, new: str) -> Edit:
    return lambda tree: tree.write(path, tree.read(path).replace(old, new, 1))


EDITS: Dict[str, Edit] = {
    "subtract in sub": replace("lib/sub.sh", "+", "-"),
    "take the larger in max": replace("lib/max.sh", "-lt", "-gt"),
    "begin with one in fact": replace("lib/fact.sh", "r=0", "r=1"),
    "multiply in add": replace("lib/add.sh", "+", "*"),
    "let everybody write": lambda tree: tree.chmod("lib", 0o777),
    "do without abs": lambda tree: tree.remove("lib/abs.sh"),
}


class State:
    """A state of the search: a tree with its statistics."""

    def __init__(self, tree: state.VirtualTree, episode: state.Episode, parent: Optional["State"]) -> None:
        self.tree, self.episode, self.parent = tree, episode, parent
        self.visits, self.total = 0, 0.0
        self.children: List[State] = []
        self.depth = 0 if parent is None else parent.depth + 1
        self.untried = [name for name in EDITS if name != episode.action]

    def worth(self) -> float:
        """Returns the UCT score, from the view of the parent."""
        if self.visits == 0 or self.parent is None:
            return math.inf
        return self.total / self.visits + EXPLORE * math.sqrt(math.log(self.parent.visits) / self.visits)


class Search:
    def __init__(self, store: state.Store, directory: Path, seed: int) -> None:
        self.store, self.directory, self.random = store, directory, random.Random(seed)
        self.by_tree: Dict[str, State] = {}
        self.transpositions = 0
        start = store.snapshot_directory(SAMPLE, "start").snapshot
        self.root = self.add(store.restore(start), start, "start", None)

    def tested(self, snapshot: state.Snapshot) -> float:
        """Returns the share of tests that pass."""
        self.store.checkout(snapshot, self.directory)
        done = subprocess.run(["sh", "test.sh"], cwd=self.directory, capture_output=True, text=True)
        counts = re.search(r"(\d+) passed, (\d+) failed", done.stdout)
        passed, failed = map(int, counts.groups()) if counts else (0, 1)
        return passed / (passed + failed)

    def risk(self, before: str, after: state.Snapshot) -> float:
        """Returns a penalty for risks of a change that the tests do not show."""
        notes = self.store.snapshots.insight(before, after)["totals"]["notes"]
        return 0.05 * sum(notes.values())

    def add(self, tree: state.VirtualTree, snapshot: state.Snapshot, action: str, parent: Optional[State]) -> State:
        reward, above = self.tested(snapshot), None
        if parent is not None:
            reward, above = max(0.0, reward - self.risk(parent.episode.snapshot, snapshot)), parent.episode.id
        new = State(tree, self.store.episodes.create(snapshot, action, reward, parent=above), parent)
        self.by_tree[snapshot.tree] = new
        return new

    def expand(self, at: State) -> State:
        action = at.untried.pop(self.random.randrange(len(at.untried)))
        tree = at.tree.clone()
        try:
            EDITS[action](tree)
        except PathNotFoundError:
            return at  # an earlier edit removed the file
        known = self.by_tree.get(tree.tree_id())
        if known is not None:
            self.transpositions += known is not at
            return known
        new = self.add(tree, tree.commit(action, durability="buffered"), action, at)
        at.children.append(new)
        print(f"  {action}: {new.episode.reward:.2f}")
        return new

    def step(self) -> None:
        at: Optional[State] = self.root
        assert at is not None
        while not at.untried and at.children:
            at = max(at.children, key=State.worth)
        if at.untried and at.depth < DEPTH:
            at = self.expand(at)
        reward = at.episode.reward
        while at is not None:
            at.visits, at.total, at = at.visits + 1, at.total + reward, at.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, state.Store(Path(directory, "store")) as store:
        search = Search(store, Path(directory, "work"), seed=1)
        for _ in range(STEPS):
            search.step()
            best = store.episodes.best(search.root.episode.id)
            if best.reward >= 1.0:
                break
        path = [episode.action for episode in store.episodes.path(best.id)][1:]
        print(f"states: {len(search.by_tree)}, transpositions: {search.transpositions}")
        print(f"best path: {' -> '.join(path)} ({best.reward:.2f})")


main()
