"""What is measured of workspaces over HTTP: one server whose store and layers have the tree."""

import os
import time

from concurrency import in_threads
from data import regular_files
from sandbox_client import Server


class Sandboxes:
    """A server of ours over a store that has the snapshot, and a sandbox from it with its layers written."""

    def __init__(self, binaries, store, snapshot, tree):
        self.server = Server(binaries, STORE_DIR=store, MAX_QUEUED_CREATIONS="1000")
        self.snapshot = snapshot
        names = [os.path.relpath(path, tree) for path in regular_files(tree, 10)]
        self.edit = f"for f in {' '.join(names)}; do echo '// changed' >> $f; done"
        self.edit_one = f"echo '// changed' >> {names[0]}"
        self.client = self.server.client()
        self.client.delete(self.make(materialize="full"))

    def make(self, **more):
        return self.client.create(snapshot=self.snapshot, **more)

    def run(self, client, sandbox, command):
        result = client.run(sandbox, command)
        assert result["exitCode"] == 0, result

    def post(self, sandbox, what, body):
        began = time.perf_counter()
        answer = self.client.ask("POST", f"/api/v1/sandboxes/{sandbox}/{what}", body)
        return time.perf_counter() - began, answer

    def commits(self, rounds):
        """Seconds over HTTP, and of that frozen, of commits of ten changed files, buffered and synced."""
        samples = {}
        for _ in range(rounds):
            for durability in ("buffered", "synced"):
                sandbox = self.make()
                self.run(self.client, sandbox, self.edit)
                took, answer = self.post(sandbox, "commit", {"durability": durability})
                samples.setdefault(f"over HTTP, {durability}", []).append(took)
                samples.setdefault(f"over HTTP, {durability}: of that, frozen", []).append(
                    answer["frozen"]["milliseconds"] / 1000
                )
                began = time.perf_counter()
                found = self.client.ask("GET", f"/api/v1/sandboxes/{sandbox}/changes")
                samples.setdefault("changes over HTTP", []).append(time.perf_counter() - began)
                assert len(found["entries"]) == 10, found
                self.client.delete(sandbox)
        return samples

    def restores(self, rounds):
        sandbox = self.make()
        self.run(self.client, sandbox, self.edit)
        other = self.post(sandbox, "commit", {})[1]["snapshot"]["id"]
        samples, frozen = [], []
        for turn in range(rounds):
            snapshot = self.snapshot if turn % 2 == 0 else other
            took, answer = self.post(sandbox, "restore", {"snapshot": snapshot})
            samples.append(took)
            frozen.append(answer["frozen"]["milliseconds"] / 1000)
        self.client.delete(sandbox)
        return samples, frozen

    def forks(self, count, rounds):
        """Seconds until the forks are there, and until each has answered a command."""
        sandbox = self.make()
        self.run(self.client, sandbox, self.edit)
        clients = [self.server.client() for _ in range(8)]
        made, answered = [], []
        for _ in range(rounds):
            self.wait_for_pool()
            began = time.perf_counter()
            ids = [fork["id"] for fork in self.post(sandbox, "fork", {"count": count})[1]["sandboxes"]]
            made.append(time.perf_counter() - began)
            self.everywhere(clients, ids, "true")
            answered.append(time.perf_counter() - began)
            self.remove(ids)
        self.client.delete(sandbox)
        return {"all made": made, "all answered": answered}

    def everywhere(self, clients, ids, command):
        """Runs a command in all of them, some at a time."""

        def some(index):
            for sandbox in ids[index :: len(clients)]:
                self.run(clients[index], sandbox, command)

        in_threads(len(clients), some)

    def remove(self, ids):
        for start in range(0, len(ids), 50):
            self.client.ask("POST", "/api/v1/sandboxes/batch-delete", {"ids": ids[start : start + 50]})

    def wait_for_pool(self):
        """Gives the server a second to refill the warm pool."""
        time.sleep(1)

    def search(self, steps):
        """Seconds of every step, and of its parts, with everything on one core."""
        mine = os.sched_getaffinity(0)
        self.server.end()
        os.sched_setaffinity(0, {min(mine)})
        try:
            # Children stay where their parent is.
            self.server.start()
            self.client = self.server.client()
            return self.search_here(steps)
        finally:
            self.server.end()
            os.sched_setaffinity(0, mine)
            self.server.start()
            self.client = self.server.client()

    def search_here(self, steps):
        root, whole, parts = self.make(), [], {}
        for _ in range(steps):
            began = time.perf_counter()
            times = self.step(root)
            whole.append(time.perf_counter() - began)
            for what, took in times.items():
                parts.setdefault(what, []).append(took)
        return whole, parts

    def step(self, root):
        times, last = {}, time.perf_counter()

        def lap(what):
            nonlocal last
            now = time.perf_counter()
            times[what], last = now - last, now

        forked = self.post(root, "fork", {"count": 1})[1]
        sandbox, base = forked["sandboxes"][0]["id"], forked["snapshot"]["id"]
        lap("fork")
        self.run(self.client, sandbox, self.edit_one)
        lap("edit")
        self.run(self.client, sandbox, "true")
        lap("run")
        new = self.post(sandbox, "commit", {"durability": "buffered"})[1]["snapshot"]["id"]
        lap("commit")
        found = self.client.ask("GET", f"/api/v1/snapshots/{base}/diff/{new}")
        lap("diff")
        assert len(found["entries"]) == 1, found
        last = time.perf_counter()
        self.client.delete(sandbox)
        lap("delete")
        return times

    def stop(self):
        self.server.stop()

