"""The rows about projects: many agents that complete their work at once, and readers that follow the head."""

import json
import os
import queue
import shutil
import statistics
import subprocess
import threading
import time

from data import regular_files
from row import Row
from sandbox_client import Server
from sandbox_rows import OURS
from timing import Command, run, summary, sync_filesystem

CONNECTIONS = 16
LIMITS = {"MAX_SANDBOXES": "2000", "MAX_QUEUED_CREATIONS": "2000", "POOL_SIZE": "0"}


class Project:
    """A project of its own on a server, with the files of a directory."""

    numbers = iter(range(1_000_000))

    def __init__(self, server, tree):
        self.server = server
        self.name = f"bench-{os.getpid()}-{next(self.numbers)}"
        self.client = server.client()
        self.client.ask("POST", "/api/v1/projects", {"name": self.name})
        archive = subprocess.run(["tar", "-C", tree, "-cf", "-", "."], check=True, stdout=subprocess.PIPE).stdout
        self.send("import", archive)

    def send(self, what, body):
        headers = {"Authorization": f"Bearer {self.client.key}", "Content-Type": "application/octet-stream"}
        self.client.connection.request("POST", f"/api/v1/projects/{self.name}/{what}", body, headers)
        answer = self.client.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text[:500]

    def sandboxes(self, count, **more):
        """Sandboxes of as many agents."""
        made = [None] * count

        def make(client, index):
            made[index] = client.create(project=self.name, agent=f"agent-{index}", **more)

        self.everywhere(range(count), make)
        return made

    def everywhere(self, items, work):
        """Does some work for all items over several connections. Returns the seconds that it took."""
        waiting, failed = queue.SimpleQueue(), []
        for item in items:
            waiting.put(item)

        def some():
            client = self.server.client()
            try:
                while True:
                    work(client, waiting.get_nowait())
            except queue.Empty:
                return
            except Exception as error:  # noqa: BLE001
                failed.append(error)

        threads = [threading.Thread(target=some) for _ in range(CONNECTIONS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return time.perf_counter() - began

    def edit(self, sandboxes, command):
        """Runs a command of its own in each sandbox."""

        def one(client, index):
            ran = client.run(sandboxes[index], command(index))
            assert ran["exitCode"] == 0, ran

        self.everywhere(range(len(sandboxes)), one)

    def complete(self, sandboxes):
        """Completes all at once. Returns the seconds until all requests were answered, and until all landed."""
        first, ids = self.client.ask("GET", f"/api/v1/projects/{self.name}")["sequence"], [None] * len(sandboxes)

        def one(client, index):
            ids[index] = client.ask("POST", f"/api/v1/sandboxes/{sandboxes[index]}/complete", {})["id"]

        began = time.perf_counter()
        answered = self.everywhere(range(len(sandboxes)), one)
        for completion in ids:
            found = self.client.ask("GET", f"/api/v1/projects/{self.name}/completions/{completion}?wait=60")
            assert found["state"] == "landed", found
        landed = time.perf_counter() - began
        last = self.client.ask("GET", f"/api/v1/projects/{self.name}")["sequence"]
        assert last == first + len(sandboxes), (first, last)
        return answered, landed

    def remove(self, sandboxes):
        for start in range(0, len(sandboxes), 50):
            self.client.ask("POST", "/api/v1/sandboxes/batch-delete", {"ids": sandboxes[start : start + 50]})

    def file(self, path):
        return self.client.get(f"/api/v1/projects/{self.name}/files/{path}").decode()


def completions(bench, row, tree, command, check, bar, policy=None):
    """Measures completions of all agents at once with each database, and checks the head after each round."""
    for database, settings in bench.databases.items():
        server = Server(bench.binaries, **LIMITS, **settings)
        try:
            answered, landed = [], []
            for _ in range(bench.rounds):
                project = Project(server, tree)
                if policy is not None:
                    project.client.ask("PUT", f"/api/v1/projects/{project.name}/policy", policy)
                sandboxes = project.sandboxes(bench.agents)
                project.edit(sandboxes, command)
                sync_filesystem(bench.data.base)
                taken = project.complete(sandboxes)
                answered.append(taken[0] * 1000)
                landed.append(taken[1] * 1000)
                check(project)
                project.remove(sandboxes)
        finally:
            server.stop()
        row.add(OURS, f"all answered, {database}", "ms", summary(answered))
        row.add(OURS, f"all landed, {database}", "ms", summary(landed))
        rate = bench.agents / statistics.median(landed) * 1000
        row.add(OURS, f"completions, {database}", "/s", summary([rate]))
        if bar is not None:
            row.at_least(f"≥ {bar[database]} completions/s, {database}", rate, bar[database], "/s")


def agents(bench):
    work = f"{bench.agents} agents, each edits its own file of {bench.files:,}, all complete at once"
    row = Row("agents", work, "over HTTP, with sandboxes; the head is the union of all edits")
    tree = bench.tree()
    paths = [os.path.relpath(path, tree) for path in regular_files(tree, bench.agents)]

    def check(project):
        for index, path in enumerate(paths):
            assert project.file(path).endswith(f"agent {index}\n"), path

    def command(index):
        return f"echo 'agent {index}' >> {paths[index]}"

    completions(bench, row, tree, command, check, {"SQLite": 300, "PostgreSQL": 200})
    merged = [git_merges(bench, tree, paths) for _ in range(bench.rounds)]
    row.add("git merge", "all landed", "ms", summary(merged))
    ratio = statistics.median(merged) / row.median(OURS, "all landed, SQLite")
    row.notes.append(f"git, one branch after another: {ratio:.1f} × our time.")
    return row


def git_merges(bench, tree, paths):
    """Milliseconds in which git merges a branch for each path, one after another."""
    place = bench.data.unused("git-project")
    shutil.copytree(tree, place, symlinks=True)

    def git(*words):
        settings = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
        run(Command(["git", "-C", place, *settings, *words]))

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    for index, path in enumerate(paths):
        git("checkout", "-q", "-b", f"agent-{index}", "main")
        with open(os.path.join(place, path), "a", encoding="utf-8") as file:
            file.write(f"agent {index}\n")
        git("commit", "-q", "-a", "-m", f"agent {index}")
    git("checkout", "-q", "main")
    sync_filesystem(bench.data.base)
    began = time.perf_counter()
    for index in range(len(paths)):
        git("merge", "-q", "--no-edit", "--no-ff", f"agent-{index}")
    taken = time.perf_counter() - began
    shutil.rmtree(place)
    return taken * 1000


def small_tree(bench, name, files):
    place = bench.data.unused(name)
    os.makedirs(place)
    for path, content in files.items():
        with open(os.path.join(place, path), "w", encoding="utf-8") as file:
            file.write(content)
    return place


def lines(bench):
    """Different lines of one file. Four lines are between two edits, so that they do not touch."""
    row = Row("lines", f"{bench.agents} agents edit different lines of one file", "over HTTP; every line is in the head")
    text = "".join(f"line {number}\n" for number in range(bench.agents * 5))
    tree = small_tree(bench, "lines", {"text.txt": text})

    def check(project):
        found = project.file("text.txt").splitlines()
        assert all(found[index * 5] == f"agent {index}" for index in range(bench.agents)), found

    def command(index):
        return f"sed -i 's/^line {index * 5}$/agent {index}/' text.txt"

    completions(bench, row, tree, command, check, None)
    return row


def counter(bench):
    row = Row("counter", f"{bench.agents} agents increment one counter", "over HTTP, `.crdt.json`; the sum is exact")
    tree = small_tree(bench, "counter", {"visits.crdt.json": '{"visits": 0}\n'})

    def check(project):
        assert json.loads(project.file("visits.crdt.json"))["visits"] == bench.agents

    rule = {"path": "*.crdt.json", "strategy": "crdt", "schema": {"visits": "counter"}}
    command = """echo '{"visits": 1}' > visits.crdt.json"""
    completions(bench, row, tree, lambda _: command, check, None, {"rules": [rule]})
    return row


def followers(bench):
    """Readers that follow the head: creation, and the time until all see a change of one file."""
    row = Row("followers", f"{bench.followers} sandboxes follow the head", f"over HTTP; a project of {bench.files:,} files")
    server = Server(bench.binaries, **LIMITS)
    try:
        project = Project(server, bench.tree())
        made = project.sandboxes(bench.followers, follow="head")
        samples = []
        client = server.client()
        for _ in range(10):
            began = time.perf_counter()
            extra = client.create(project=project.name, agent="one-more", follow="head")
            samples.append((time.perf_counter() - began) * 1000)
            client.delete(extra)
        row.add(OURS, "one more created", "ms", summary(samples))
        seen = [switch(project, made, turn) for turn in range(max(3, bench.rounds))]
        row.add(OURS, "all see the new head", "ms", summary(seen))
        row.at_most("≤ 250 ms until all see it", statistics.median(seen), 250, "ms")
        project.remove(made)
    finally:
        server.stop()
    return row


def switch(project, sandboxes, turn):
    """Milliseconds from the answer of a completion until the last follower sees it."""
    wait = f"until grep -qs '^{turn}$' /workspace/turn.txt; do sleep 0.005; done; date +%s%N"
    ended, waiting = [0] * len(sandboxes), threading.Semaphore(0)

    def watch(index):
        client = project.server.client()
        waiting.release()
        ran = client.run(sandboxes[index], wait)
        ended[index] = int(ran["stdout"])

    threads = [threading.Thread(target=watch, args=(index,)) for index in range(len(sandboxes))]
    for thread in threads:
        thread.start()
    for _ in threads:
        waiting.acquire()
    # The commands themselves begin after their requests.
    time.sleep(2)
    writer = project.client.create(project=project.name, agent="writer")
    assert project.client.run(writer, f"echo {turn} > turn.txt")["exitCode"] == 0
    done = project.client.ask("POST", f"/api/v1/sandboxes/{writer}/complete", {"wait": 60})
    landed = time.time_ns()
    assert done["state"] == "landed", done
    for thread in threads:
        thread.join()
    project.client.delete(writer)
    return max(0, max(ended) - landed) / 1e6


def write_back(bench):
    """One agent with one changed file: a completion, and a copy of the whole tree back."""
    row = Row("write-back", f"one changed file of {bench.files:,} goes back", "over HTTP; the peer copies the whole tree")
    tree = bench.tree()
    path = os.path.relpath(regular_files(tree, 1)[0], tree)
    server = Server(bench.binaries, **LIMITS)
    try:
        project = Project(server, tree)
        sandbox, samples = project.sandboxes(1)[0], []
        for turn in range(bench.rounds * 5):
            assert project.client.run(sandbox, f"echo {turn} >> {path}")["exitCode"] == 0
            began = time.perf_counter()
            done = project.client.ask("POST", f"/api/v1/sandboxes/{sandbox}/complete", {"wait": 60})
            samples.append((time.perf_counter() - began) * 1000)
            assert done["state"] == "landed", done
        project.remove([sandbox])
    finally:
        server.stop()
    copies = []
    for _ in range(bench.rounds):
        place = bench.data.unused("copy-back")
        sync_filesystem(bench.data.base)
        copies.append(run(Command(["cp", "-a", tree, place])).wall * 1000)
        shutil.rmtree(place)
    row.add(OURS, "one agent", "ms", summary(samples))
    row.add("cp -a", "one agent", "ms", summary(copies))
    row.notes.append(f"A copy of the whole tree takes {statistics.median(copies) / statistics.median(samples):.0f} × our time.")
    return row
