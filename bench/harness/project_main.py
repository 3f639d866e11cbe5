"""Builds, makes the tree, runs the rows about projects, writes the report."""

import datetime
import os
import sys
import tempfile

import machine
import project_rows
from data import FULL, QUICK, Data
from plot import plot
from report import bars, details, reasons
from sandbox_client import OVERRIDDEN
from sandbox_main import build, place, save, typed, write
from sandbox_peers import Package
from timing import Command, run

ROWS = {
    "agents": project_rows.agents,
    "lines": project_rows.lines,
    "counter": project_rows.counter,
    "followers": project_rows.followers,
    "write-back": project_rows.write_back,
}
PANELS = {"agents": "all landed", "write-back": "one agent"}


class Bench:
    """What the rows share."""

    def __init__(self, binaries, data, quick):
        self.binaries = binaries
        self.data = data
        self.agents = 10 if quick else 100
        self.files = 500 if quick else 10_000
        self.rounds = 1 if quick else 3
        self.followers = 20 if quick else 200
        self.databases = {"SQLite": {}}
        if "DATABASE_URL" in os.environ:
            self.databases["PostgreSQL"] = {"DATABASE_URL": os.environ["DATABASE_URL"]}

    def tree(self):
        return self.data.tree(self.files)


def main(words, usage):
    chosen, options = typed(words, usage, ROWS)
    quick = "--quick" in options
    output, results = place(quick, "projects")
    if "--render" not in options:
        if os.geteuid() != 0:
            print("error: sandboxes of this benchmark need root", file=sys.stderr)
            return 1
        measure(chosen, quick, results, output)
    render(results, output)
    return 0


def measure(chosen, quick, results, output):
    machine.install_missing([Package("git", "git")])
    binaries = build("workspace-bench")
    default = os.path.join(tempfile.gettempdir(), "workspace-bench")
    base = os.path.join(os.environ.get("WORKSPACE_BENCH_DIR", default), "quick" if quick else "full")
    os.makedirs(base, exist_ok=True)
    data = Data(base, QUICK if quick else FULL, os.path.join(binaries, "workspace-bench"))
    bench = Bench(binaries, data, quick)
    results.update(quick=quick, date=datetime.date.today().isoformat(), machine=machine.describe(base))
    results["git"] = run(Command(["git", "--version"]), capture=True).output
    try:
        for name in chosen:
            load = round(os.getloadavg()[0], 2)
            print(f"  {name}", file=sys.stderr)
            row = ROWS[name](bench).to_json()
            row["load_before"] = load
            results["rows"][name] = row
            save(results, output, "projects")
    finally:
        data.clean()


def render(results, output):
    rows = [results["rows"][name] for name in ROWS if name in results["rows"]]
    page = os.path.join(output, "projects.md")
    facts = results["machine"]
    small = " — few agents, only to try the harness" if results.get("quick") else ""
    overridden = ", ".join(f"`{name}={value}`" for name, value in OVERRIDDEN.items())
    parts = [
        f"# Projects: speed{small}\n",
        f"Made by `bench/projects` on {results['date']}; do not edit, except between the marks.\n",
        "## Before the numbers\n",
        f"- One machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB of memory, Linux "
        f"{facts['kernel']}, {facts['system']}. Each row says what the load was before it. Peer: {results['git']}.",
        "- Server, sandboxes and clients share the machine; the client is Python, with 16 connections. "
        f"Limits that are overridden: {overridden}.",
        "- A completion is counted from the request, which freezes and commits the workspace, until the head has its "
        "changes. Everything that is acknowledged is on disk.",
        "- git merges one branch after another into a work tree, without syncing anything to disk.\n",
        bars(rows),
        reasons(page),
        "![Times by tool](projects.svg)\n",
        *(details(row).replace("`bench/run ", "`bench/projects ") for row in rows),
        "## Again\n\n`bench/projects` measures everything; `bench/projects --help` says how to measure less.\n",
    ]
    write(page, parts, plot(rows, PANELS, "Projects, and git"))
