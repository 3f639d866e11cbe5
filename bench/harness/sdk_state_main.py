"""Builds the Python module of the state engine and its counterpart in Rust, runs the rows, writes the report."""

import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import machine
from report import bars, details, reasons
from row import Row
from sandbox_main import ROOT, place, save, typed
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


ROWS = {"step": step}


def main(words, usage):
    chosen, options = typed(words, usage, ROWS)
    quick = "--quick" in options
    output, results = place(quick, "sdk-state")
    if "--render" not in options:
        measure(chosen, quick, results, output)
    render(results, output)
    return 0


def measure(chosen, quick, results, output):
    build()
    load = round(os.getloadavg()[0], 2)
    python = run(Command([PYTHON, "--version"]), capture=True).output
    with Bench(quick) as bench:
        facts = machine.describe(bench.directory)
        results.update(quick=quick, date=datetime.date.today().isoformat(), machine=facts, python=python)
        for name in chosen:
            print(f"  {name}", file=sys.stderr)
            row = ROWS[name](bench).to_json()
            row["load_before"] = load
            results["rows"][name] = row
            save(results, output, "sdk-state")


def build():
    environment = {**os.environ, "WORKSPACE_STATE_PROFILE": "release", "CARGO_TARGET_DIR": TARGET}
    subprocess.run([os.path.join(MODULE, "install.sh")], check=True, env=environment)
    command = ["cargo", "build", "--quiet", "--release", "--example", "steps"]
    subprocess.run(command, check=True, cwd=MODULE, env=environment)


def render(results, output):
    rows = [results["rows"][name] for name in ROWS if name in results["rows"]]
    page = os.path.join(output, "sdk-state.md")
    facts = results["machine"]
    small = " — little data and few repetitions, only to try the harness" if results.get("quick") else ""
    parts = [
        f"# State engine in Python: overhead over Rust{small}\n",
        f"Made by `bench/sdk-state` on {results['date']}; do not edit, except between the marks.\n",
        "## Before the numbers\n",
        f"- One machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB of memory, Linux "
        f"{facts['kernel']}, {facts['system']}, as {facts['user']}; {results['python']}.",
        f"- Filesystem: {facts['filesystem']}. Load average when the run began: {facts['load_before']}.",
        "- Both languages run the same release build of the state engine, on the same store, in turns of a process each. "
        "Each turn has its own random changes: 4 KiB of text that no other turn writes.",
        f"- The first {WARM_UP} steps of a turn are not counted: they read directories that a search has in memory.\n",
        bars(rows),
        reasons(page),
        *(details(row).replace("`bench/run ", "`bench/sdk-state ") for row in rows),
        "## Again\n\n`bench/sdk-state` measures everything; `bench/sdk-state --help` says how to measure less.\n",
    ]
    with open(page, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))
