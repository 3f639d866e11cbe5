"""Builds, makes the data, runs the rows, writes the report."""

import datetime
import json
import os
import subprocess
import sys

import machine
import rows_command
import rows_engine
import rows_mount
import rows_storage
from benchmark import load_results, parse_arguments
from data import open_data, run_directory
from programs import ROOT, build_packages
from state_report import render
from timing import Command, CommandFailed, run
from tools import PEERS, Git, Workspace

ROWS = {
    "commit-buffered": rows_engine.commit_buffered,
    "commit-synced": rows_engine.commit_synced,
    "commit-group": rows_engine.commit_group,
    "clone-restore": rows_engine.clone_and_restore,
    "diff": rows_engine.diff,
    "first-snapshot": rows_command.first_snapshot,
    "next-snapshot": rows_command.next_snapshot,
    "checkout": rows_command.full_checkout,
    "checkout-between": rows_command.checkout_between,
    "mount": rows_mount.mount_and_read,
    "grep": rows_mount.grep,
    "history": rows_storage.history_size,
    "memory-file": rows_storage.memory_file,
    "memory-tree": rows_storage.memory_tree,
}
LAYOUTS = ("layouts", "hashes")


class Bench:
    """What the rows share."""

    def __init__(self, data, binaries):
        self.data = data
        self.scale = data.scale
        self.generator = os.path.join(binaries, "workspace-bench")
        self.command = os.path.join(binaries, "workspace")
        self.engine = rows_engine.Engine(self)

    def workspace(self):
        return Workspace(self.data, self.command)

    def latest(self, tool):
        """The id of the snapshot that was made last."""
        if isinstance(tool, Git):
            return run(tool.command(tool.base, "rev-parse", "HEAD"), capture=True).output
        shown = run(tool.command("--json", "show", "main"), capture=True).output
        return json.loads(shown)["id"]

    def progress(self, row, step, tool):
        print(f"  {row.id} {step} {tool}", file=sys.stderr)


def main(words, usage):
    chosen, options = parse_arguments(words, usage, [*ROWS, *LAYOUTS])
    try:
        measure(chosen, "--quick" in options, "--render" in options)
    except (CommandFailed, subprocess.CalledProcessError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


def measure(chosen, quick, only_render):
    base = run_directory(quick)
    output = base if quick else os.path.join(ROOT, "docs", "benchmarks")
    os.makedirs(output, exist_ok=True)
    numbers = os.path.join(output, "state.json")
    results = load_results(numbers)
    if not only_render:
        binaries = build(chosen)
        machine.install_missing(PEERS)
        bench = Bench(open_data(quick, binaries), binaries)
        results["machine"] = machine.describe(base)
        results["quick"] = quick
        results["date"] = datetime.date.today().isoformat()
        results["tools"] = describe_tools(bench)
        for name in chosen:
            print(f"{name} …", file=sys.stderr)
            bench.data.make_room()
            store(results, name, bench)
            save(numbers, results)
        bench.data.clean()
    render(results, output, list(ROWS))
    print(os.path.join(output, "state.md"))


def store(results, name, bench):
    """Runs one row and keeps its numbers; the load is the one before it began."""
    load_before = os.getloadavg()[0]
    if name in LAYOUTS:
        words = [name, bench.data.base, "--json"]
        results[name] = json.loads(run(Command([bench.generator, *words]), capture=True).output)
        return
    row = ROWS[name](bench).to_json()
    row["load_before"] = round(load_before, 2)
    results["rows"][name] = row


def build(chosen):
    """The release binaries; the command only when a row needs it."""
    packages = ["workspace-bench"]
    if any(row in chosen for row, work in ROWS.items() if work.__module__ != "rows_engine"):
        packages.append("workspace-cli")
    return build_packages(*packages)


def describe_tools(bench):
    ours = {"name": "workspace", "version": "this commit", "note": Workspace.note}
    peers = (peer(bench.data) for peer in PEERS)
    return [ours, *({"name": peer.name, "version": peer.version(), "note": peer.note} for peer in peers)]


def save(path, results):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)
        file.write("\n")
    os.replace(path + ".new", path)
