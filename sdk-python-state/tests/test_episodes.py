"""Episodes: the steps of searches."""

from __future__ import annotations

import math

import pytest

from workspace_sdk.errors import InvalidRequestError, NotFoundError, SnapshotNotFoundError
from workspace_state import Store


def test_episodes_record_a_search(store: Store) -> None:
    tree, episodes = store.empty_tree(), store.episodes
    start = episodes.create(tree.commit(), "start", 0.25)
    assert (start.parent, start.visits, start.data) == (None, 1, None)
    rewards = (0.5, 0.75, 0.1)
    steps = []
    for number, reward in enumerate(rewards):
        child = tree.clone()
        child.write("file", str(number))
        snapshot = child.commit(durability="buffered")
        steps.append(episodes.create(snapshot, f"step {number}", reward, parent=start.id, data={"n": [number, None]}))
    last = episodes.create(steps[1].snapshot, "last", 0.9, parent=steps[1].id, visits=3, durability="synced")

    assert [episode.id for episode in episodes.list()] == [start.id]
    assert [episode.action for episode in episodes.children(start.id)] == ["step 0", "step 1", "step 2"]
    assert [episode.action for episode in episodes.path(last.id)] == ["start", "step 1", "last"]
    assert len(episodes.subtree(start.id)) == 5
    assert episodes.best(start.id).id == last.id
    assert episodes.get(steps[2].id).data == {"n": [2, None]}

    updated = episodes.update(steps[0].id, reward=1.5, visits=7)
    assert (updated.reward, updated.visits, updated.data) == (1.5, 7, {"n": [0, None]})
    assert episodes.best(start.id).id == steps[0].id
    episodes.delete(steps[1].id)
    assert len(episodes.subtree(start.id)) == 3


def test_invalid_episodes_are_refused(store: Store) -> None:
    snapshot = store.empty_tree().commit()
    start = store.episodes.create(snapshot, "start", 0)
    for reward in (math.nan, math.inf):
        with pytest.raises(InvalidRequestError, match="finite"):
            store.episodes.create(snapshot, "step", reward, parent=start.id)
    with pytest.raises(TypeError, match="JSON"):
        store.episodes.create(snapshot, "step", 0, data=object())
    with pytest.raises(InvalidRequestError, match="JSON"):
        store.episodes.create(snapshot, "step", 0, data=math.nan)
    with pytest.raises(NotFoundError) as caught:
        store.episodes.create(snapshot, "step", 0, parent=snapshot.id)
    assert caught.value.details == {"episode": snapshot.id}
    with pytest.raises(SnapshotNotFoundError):
        store.episodes.create(start.id, "step", 0)
    assert len(store.episodes.subtree(start.id)) == 1


def test_the_insight_diff_names_risks(store: Store) -> None:
    tree = store.empty_tree()
    tree.write("run.sh", "echo 1\n")
    before = tree.commit()
    tree.chmod("run.sh", 0o777)
    tree.write("key", "x" * 10)
    insight = store.snapshots.insight(before, tree.commit())
    assert {entry["path"] for entry in insight["entries"]} == {"key", "run.sh"}
    assert insight["totals"]["notes"] == {"became_executable": 1}
