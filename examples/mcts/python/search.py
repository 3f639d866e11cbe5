#!/usr/bin/env python3
"""A small search over plain HTTP: repairs the failing tests of a sample by trying edits.

usage: search.py [--seed N] [--steps N] [--server URL] [--key KEY]

Each state of the search is a snapshot. A step makes a sandbox from one, applies an edit, runs the tests, commits, reads
what the change means (the insight diff), and keeps an episode. States that were reached before, by another order of the same
edits, have the same tree and are recognised. Nothing but the standard library is needed.
"""

import argparse
import io
import json
import math
import os
import pathlib
import re
import sys
import tarfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent.parent
# How much is explored: larger looks further around, smaller follows what went well.
EXPLORE = 0.7
DEPTH = 5


class Server:
    """The few requests that a search makes."""

    def __init__(self, address, key):
        self.address, self.key = address.rstrip("/"), key

    def ask(self, method, path, body=None, raw=None):
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if raw is not None else "application/json"
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind}
        request = urllib.request.Request(f"{self.address}/api/v1/{path}", data, headers, method=method)
        while True:
            try:
                with urllib.request.urlopen(request) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}")
                # Too many requests in a short time: the server says when to come again.
                time.sleep(float(error.headers.get("Retry-After", 1)))

    def upload(self, directory):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(directory, arcname=".")
        return self.ask("POST", "snapshots?message=sample", raw=archive.getvalue())

    def run(self, sandbox, command):
        return self.ask("POST", f"sandboxes/{sandbox}/process/run", {"command": command})


class Chance:
    """Numbers that look like chance and are the same for the same seed, here and in Rust."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % limit


class State:
    """A state of the search: a snapshot and what is known of it."""

    def __init__(self, number, snapshot, reward, action, parent, episode):
        self.number, self.snapshot, self.reward = number, snapshot, reward
        self.action, self.parent, self.episode = action, parent, episode
        self.visits, self.total = 0, 0.0
        self.untried, self.children = list(range(6)), []
        self.depth = 0 if parent is None else parent.depth + 1

    def worth(self):
        if self.visits == 0:
            return math.inf
        explored = math.sqrt(math.log(self.parent.visits) / self.visits)
        return self.total / self.visits + EXPLORE * explored


class Search:
    def __init__(self, server, seed):
        self.server, self.chance = server, Chance(seed)
        self.edits = json.loads((HERE / "edits.json").read_text())
        self.states, self.by_tree, self.transpositions = [], {}, 0
        start = server.upload(HERE / "sample")
        self.root = self.add(start, self.tested(start["id"], "true")[0], "start", None)

    def tested(self, snapshot, edit):
        """What the tests say after an edit, and the snapshot of that."""
        made = self.server.ask("POST", "sandboxes", {"template": "base", "snapshot": snapshot})
        try:
            ran = self.server.run(made["id"], f"{edit}; sh test.sh")
            said = re.search(r"(\d+) passed, (\d+) failed", ran["stdout"])
            passed, failed = map(int, said.groups()) if said else (0, 1)
            order = {"message": edit, "durability": "buffered"}
            committed = self.server.ask("POST", f"sandboxes/{made['id']}/commit", order)["snapshot"]
        finally:
            self.server.ask("DELETE", f"sandboxes/{made['id']}")
        return passed / (passed + failed), committed

    def add(self, snapshot, reward, action, parent):
        episode = self.server.ask("POST", "episodes", {
            "snapshot": snapshot["id"],
            "parent": parent.episode if parent else None,
            "action": action,
            "reward": reward,
        })
        state = State(len(self.states), snapshot, reward, action, parent, episode["id"])
        self.states.append(state)
        self.by_tree[snapshot["tree"]] = state
        if parent:
            parent.children.append(state)
        return state

    def risk(self, before, after):
        """What a change may cost beside what the tests see."""
        path = f"snapshots/{before['id']}/diff/{after['id']}?insight=true"
        judged = self.server.ask("GET", path)
        return 0.05 * sum(judged["totals"]["notes"].values())

    def step(self):
        state = self.root
        while not state.untried and state.children:
            state = max(state.children, key=State.worth)
        if state.untried and state.depth < DEPTH:
            state = self.expand(state)
        reward = state.reward
        while state:
            state.visits, state.total = state.visits + 1, state.total + reward
            state = state.parent

    def expand(self, state):
        chosen = state.untried.pop(self.chance.below(len(state.untried)))
        name, edit = self.edits[chosen]
        reward, snapshot = self.tested(state.snapshot["id"], edit)
        known = self.by_tree.get(snapshot["tree"])
        if known is state:
            return state
        if known:
            self.transpositions += 1
            print(f"  {state.number} + {name}: the tree of {known.number} again, by another way")
            return known
        reward = max(0.0, reward - self.risk(state.snapshot, snapshot))
        new = self.add(snapshot, reward, name, state)
        new.untried = [edit for edit in new.untried if edit != chosen]
        print(f"  {state.number} + {name} -> {new.number}: {reward:.2f}")
        return new

    def best(self):
        return max(self.states, key=lambda state: (state.reward, -state.depth))

    def print_tree(self, state=None, indent=""):
        state = state or self.root
        mark = "*" if state is self.best() else " "
        print(f"{indent}{mark}{state.number} {state.action}: {state.reward:.2f}, {state.visits} visits")
        for child in state.children:
            self.print_tree(child, indent + "  ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--server", default=os.environ.get("WORKSPACE_SERVER", "http://127.0.0.1:8080"))
    parser.add_argument("--key", default=os.environ.get("WORKSPACE_API_KEY"))
    given = parser.parse_args()
    if not given.key:
        sys.exit("a key is needed: --key, or WORKSPACE_API_KEY")
    search = Search(Server(given.server, given.key), given.seed)
    print("steps:")
    for _ in range(given.steps):
        search.step()
        if search.best().reward >= 1.0:
            break
    print("\ntree:")
    search.print_tree()
    best = search.best()
    path = search.server.ask("GET", f"episodes/{best.episode}/path")
    actions = [episode["action"] for episode in path["items"] if episode["action"] != "start"]
    print(f"\ntranspositions: {search.transpositions}")
    print(f"best path: {' -> '.join(actions)} ({best.reward:.2f})")
    sys.exit(0 if best.reward >= 1.0 else 1)


if __name__ == "__main__":
    main()
