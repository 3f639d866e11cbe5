"""Builds, makes the data, runs the rows about merges, writes the report."""

import functools
import json
import os
import sys

import merge_rows
from benchmark import run_benchmark
from data import open_data
from machine import git_version, install_missing
from programs import build_packages
from report import Picture, Report, describe_machine
from sandbox_peers import Package
from timing import Command, run
from workspace_main import Git

ROWS = {
    "text": merge_rows.text,
    "process": merge_rows.process,
    "tree": merge_rows.scattered,
    "neighbours": merge_rows.neighbours,
    "json": merge_rows.json_documents,
    "large": merge_rows.large,
}
PANELS = {"text": "1,000 files", "process": "one file", "tree": "two sides", "neighbours": "two sides"}
BINARIES = ("workspace", "workspace-bench")
REPORT = Report(
    "merge", "Merges: speed and memory", quick_scale="small data", picture=Picture("Merges, and git's", PANELS)
)


class Bench:
    """What the rows share."""

    def __init__(self, binaries, data, quick):
        self.workspace, self.program = (os.path.join(binaries, name) for name in BINARIES)
        self.data = data
        self.files = 100 if quick else 1_000
        self.tree_files = 2_000 if quick else 100_000
        self.changes = 20 if quick else 100
        self.rounds = 3 if quick else 20
        self.large = (1 if quick else 100) << 20

    def bed(self, name):
        path = os.path.join(self.data.base, f"merge-{name}")
        os.makedirs(path, exist_ok=True)
        return path

    def part(self, name, bed=None, **options):
        """What a part measured."""
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        command = [self.program, "merges", self.bed(bed or name), "--part", name, *words]
        return json.loads(run(Command(command), capture=True).output)

    @functools.cache  # noqa: B019
    def git(self):
        """A packed repository of the tree, as a clone would have it."""
        git = Git(os.path.join(self.data.base, "git"), self.data.tree(self.tree_files))
        if not any(name.endswith(".pack") for name in os.listdir(os.path.join(git.store, "objects/pack"))):
            print("    packing git's repository", file=sys.stderr)
            run(git.command("repack", "-adq"))
        return git


def main(words, usage):
    return run_benchmark(words, usage, REPORT, ROWS, measure, caveats)


def measure(session):
    install_missing([Package("git", "git")])
    binaries = build_packages("workspace-cli", "workspace-bench")
    data = open_data(session.quick, binaries)
    session.describe(data.base)
    session.results["git"] = git_version()
    session.measure_rows(Bench(binaries, data, session.quick))


def caveats(results):
    facts = results["machine"]
    return [
        f"{describe_machine(facts)}. Each row says what the load was before it. Peer: {results['git']}.",
        "- Everything is in the page cache and on one core; ours and git take turns, but for the 1,000 texts.",
        "- Texts come from the seeded generator of the state engine's benchmark: sizes log-normal with a median of 4 KiB. Each side "
        "changes one to four places; in every tenth file both change the same place.",
        "- The tree is the 100,000 files (1 GB, a dozen files a directory) of the other benchmarks. Of a side's 100 changes 80 are "
        "edits (ten of files that both edit), the rest is added, removed and renamed. git's repository is packed.",
    ]
