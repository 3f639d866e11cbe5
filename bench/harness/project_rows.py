"""The rows about many agents that complete their work at once, and about one that brings back one file."""

import json
import os
import shutil
import statistics
import time

from project_client import Project, served_project, some_paths, tree_files
from row import Row
from sandbox_rows import OURS
from timing import Command, run, summary, sync_filesystem


def tool_name(database):
    """SQLite is the default; the other rows are compared with it."""
    return OURS if database == "SQLite" else f"{OURS}, {database}"


def completions(bench, row, tree, command, check, policy=None):
    """Measures completions of all agents at once with each database. Returns their rates, and what the checks returned."""
    rates, checked = {}, {}
    for database in bench.databases:
        answered, recorded, landed = [], [], []
        with bench.server(database) as server:
            for _ in range(bench.rounds):
                project = Project(server, bench.data, tree)
                if policy is not None:
                    project.set_policy(policy)
                sandboxes = project.sandboxes(bench.agents)
                project.edit(sandboxes, command)
                sync_filesystem(bench.data.base)
                taken = project.complete(sandboxes)
                answered.append(taken[0] * 1000)
                recorded.append(taken[1] * 1000)
                landed.append(taken[2] * 1000)
                checked.setdefault(database, []).append(check(project))
                project.remove(sandboxes)
                project.delete()
        tool = tool_name(database)
        row.add(tool, "all answered", "ms", summary(answered))
        row.add(tool, "all in the history", "ms", summary(recorded))
        row.add(tool, "all landed", "ms", summary(landed))
        row.add(tool, "completions", "/s", summary([bench.agents / taken * 1000 for taken in landed]))
        rates[database] = bench.agents / statistics.median(landed) * 1000
    row.notes.append("Landed is when the client reads a head with all changes; the history has the time of the last change of the head.")
    for database, reason in bench.without.items():
        row.notes.append(f"Not measured with {database}: {reason}.")
    return rates, checked


def agents(bench):
    work = f"{bench.agents} agents, each edits its own file of {bench.files:,}, all complete at once"
    row = Row("agents", work, "over HTTP, with sandboxes; the head is compared with the union of all edits, file by file")
    tree = bench.tree()
    paths = some_paths(tree, bench.agents)
    union = tree_files(tree)
    for index, path in enumerate(paths):
        union[path] += f"agent {index}\n".encode()

    def check(project):
        head = project.files(bench.data)
        return sum(head.get(path) != union.get(path) for path in head.keys() | union.keys())

    def command(index):
        return f"echo 'agent {index}' >> '{paths[index]}'"

    rates, different = completions(bench, row, tree, command, check)
    for database, counts in different.items():
        row.at_most(f"head is exactly the union, {database}: 0 files differ", max(counts), 0, "files")
    bars = {"SQLite": 300, "PostgreSQL": 200}
    for database, rate in rates.items():
        row.at_least(f"≥ {bars[database]} completions/s, {database}", rate, bars[database], "/s")
    merged = [git_merges(bench, tree, paths) for _ in range(bench.rounds)]
    row.add("git merge", "all landed", "ms", summary(merged))
    row.add("git merge", "completions", "/s", summary([bench.agents / taken * 1000 for taken in merged]))
    for database in rates:
        ratio = statistics.median(merged) / row.median(tool_name(database), "all landed")
        row.shown(f"git, {bench.agents} branches one after another, as a multiple of our time with {database}", ratio, "×")
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
    for index, path in enumerate(paths):
        with open(os.path.join(place, path), encoding="utf-8") as file:
            assert file.read().endswith(f"agent {index}\n"), path
    return taken * 1000


def small_tree(bench, name, files):
    place = bench.data.directory(name)
    for path, content in files.items():
        with open(os.path.join(place, path), "w", encoding="utf-8") as file:
            file.write(content)
    return place


def lines(bench):
    """Different lines of one file. Four lines are between two edits, so that they do not touch."""
    row = Row("lines", f"{bench.agents} agents edit different lines of one file", "over HTTP; all complete at once")
    text = "".join(f"line {number}\n" for number in range(bench.agents * 5))
    tree = small_tree(bench, "lines", {"text.txt": text})

    def check(project):
        found = project.file("text.txt").splitlines()
        kept = sum(found[line] == f"line {line}" for line in range(len(found)) if line % 5)
        assert (len(found), kept) == (bench.agents * 5, bench.agents * 4), found
        return sum(found[index * 5] == f"agent {index}" for index in range(bench.agents))

    def command(index):
        return f"sed -i 's/^line {index * 5}$/agent {index}/' text.txt"

    for database, found in completions(bench, row, tree, command, check)[1].items():
        row.at_least(f"all land, every one of {bench.agents} lines is there, {database}", min(found), bench.agents, "lines")
    return row


def counter(bench):
    row = Row("counter", f"{bench.agents} agents increment one counter", "over HTTP, `.crdt.json`; all complete at once")
    tree = small_tree(bench, "counter", {"visits.crdt.json": '{"visits": 0}\n'})

    def check(project):
        return json.loads(project.file("visits.crdt.json"))["visits"]

    rule = {"path": "*.crdt.json", "strategy": "crdt", "schema": {"visits": "counter"}}
    command = """echo '{"visits": 1}' > visits.crdt.json"""
    sums = completions(bench, row, tree, lambda _: command, check, {"rules": [rule]})[1]
    for database, found in sums.items():
        wrong = max(abs(visits - bench.agents) for visits in found)
        row.at_most(f"all land, the sum is exactly {bench.agents}, {database}: off by 0", wrong, 0, "off")
    return row


def write_back(bench):
    """One agent with one changed file: a completion, and a copy of the whole tree back."""
    row = Row("write-back", f"one changed file of {bench.files:,} goes back", "over HTTP; the peer copies the whole tree")
    tree = bench.tree()
    path = some_paths(tree, 1)[0]
    with served_project(bench, tree) as project:
        sandbox, samples = project.sandboxes(1)[0], []
        for turn in range(bench.rounds * 5):
            assert project.client.run(sandbox, f"echo {turn} >> '{path}'")["exitCode"] == 0
            began = time.perf_counter()
            project.complete_one(sandbox)
            samples.append((time.perf_counter() - began) * 1000)
        project.remove([sandbox])
    copies = []
    for _ in range(bench.rounds):
        place = bench.data.unused("copy-back")
        sync_filesystem(bench.data.base)
        copies.append(run(Command(["cp", "-a", tree, place])).wall * 1000)
    row.add(OURS, "one agent", "ms", summary(samples))
    row.add("cp -a", "one agent", "ms", summary(copies))
    ratio = statistics.median(copies) / statistics.median(samples)
    row.shown("a copy of the whole tree, as a multiple of our time", ratio, "×")
    row.notes.append("What is copied is not synced to disk; our completion is.")
    return row
