"""The rows about the state engine in Python. Each turn of a language is a process of its own."""

import json
import os
import random
import shutil
import tempfile

from programs import ROOT
from row import Row
from timing import Command, run, summary

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sdk_state_client.py")
MODULE = os.path.join(ROOT, "sdk-python-state")
PYTHON = os.path.join(ROOT, "sdk-python/.venv/bin/python")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
RUST = os.path.join(TARGET, "release/examples/steps")
FILES, STEPS, ROUNDS = 100_000, 1000, 10
# Steps at the beginning of a run read directories that are not in memory yet, in both languages.
WARM_UP = 200
# Bytes of a changed file.
CHANGE = 4096
BAR = 1.5
TOOLS = {"Rust": [RUST], "Python": [PYTHON, CLIENT, "steps"]}


class Bench:
    """A store, and changes to its files. Use it in a `with` block."""

    def __init__(self, quick):
        self.files = FILES // 10 if quick else FILES
        self.steps = STEPS // 5 if quick else STEPS
        self.rounds = 2 if quick else ROUNDS
        self.random = random.Random(1)
        with open(os.path.join(ROOT, "bench/src/vocabulary.txt"), encoding="utf-8") as file:
            self.words = file.read().split()

    def __enter__(self):
        parent = os.environ.get("WORKSPACE_BENCH_DIR")
        if parent:
            os.makedirs(parent, exist_ok=True)
        self.directory = tempfile.mkdtemp(prefix="workspace-bench-", dir=parent)
        self.store = os.path.join(self.directory, "store")
        output = run(Command([PYTHON, CLIENT, "prepare", self.store, self.files]), capture=True).output
        self.paths = json.loads(output)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory)

    def changes(self):
        """Writes changes that nobody made before, and returns the path of the file."""
        path = os.path.join(self.directory, "changes.json")
        work = [(self.random.choice(self.paths), self.text()) for _ in range(WARM_UP + self.steps)]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(work, file)
        return path

    def text(self):
        words = []
        size = 0
        while size < CHANGE:
            words.append(self.random.choice(self.words))
            size += len(words[-1]) + 1
        return " ".join(words)[:CHANGE]

    def measure(self, tool):
        """Microseconds of steps and clones of one run."""
        output = run(Command([*TOOLS[tool], self.store, "base", self.changes()]), capture=True).output
        return {what: times[WARM_UP:] for what, times in json.loads(output).items()}


def step(bench):
    row = Row(
        "step",
        f"a step on a tree of {bench.files:,} files: clone, change 1, commit buffered",
        "one process at a time with the store open; the languages take turns",
    )
    times = {}
    for turn in range(bench.rounds):
        for tool in (list(TOOLS), list(reversed(TOOLS)))[turn % 2]:
            for what, samples in bench.measure(tool).items():
                times.setdefault((tool, what), []).extend(samples)
    for (tool, what), samples in sorted(times.items(), key=lambda item: (item[0][1], item[0][0] != "Rust")):
        row.add(tool, {"steps": "step", "clones": "clone alone"}[what], "µs", percentiles(samples))
    ratio = row.median("Python", "step") / row.median("Rust", "step")
    row.at_most(f"Python ≤ {BAR} × Rust", ratio, BAR, "×")
    row.notes.append("The range is p10 to p90 of single steps.")
    return row


def percentiles(samples):
    """Median, p10 and p90."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return {**summary(samples), "min": ordered[round(last * 0.1)], "max": ordered[round(last * 0.9)]}
