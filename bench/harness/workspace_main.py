"""Builds, makes the tree, runs the rows about workspaces, writes the report."""

import functools
import json
import os
import sys
import time

import machine
import workspace_rows
from benchmark import run_benchmark
from data import open_data
from programs import build_server, cargo_metadata
from report import Picture, Report, describe_machine, list_settings
from sandbox_client import OVERRIDDEN
from sandbox_peers import HARDENED, PACKAGES, Docker, Package, time_to_output
from timing import Command, run, sync_filesystem
from workspace_server import Sandboxes

ROWS = {
    "create": workspace_rows.create,
    "ordinary": workspace_rows.ordinary,
    "lazy": workspace_rows.lazy,
    "forks": workspace_rows.forks,
    "changes": workspace_rows.changes,
    "commit": workspace_rows.commit,
    "restore": workspace_rows.restore,
    "many": workspace_rows.many,
    "build": workspace_rows.build,
    "search": workspace_rows.search,
}
PANELS = {"create": "made", "changes": "copy", "forks": "all answered", "build": "first time"}
NEEDED = [Package("git", "git"), Package("gcc", "gcc"), Package("make", "make"), Package("setpriv", "util-linux")]
REPORT = Report(
    "workspace",
    "Workspaces: speed, disk and memory",
    quick_scale="a small tree",
    picture=Picture("Workspaces and their peers", PANELS),
)


class Git:
    """A repository of the tree, outside of it."""

    def __init__(self, store, tree):
        self.store = store
        if not os.path.exists(store):
            run(Command(["git", "init", "-q", "--bare", store + ".partial"]))
            self.store = store + ".partial"
            run(self.command("--work-tree", tree, "add", "-A"))
            run(self.command("--work-tree", tree, "commit", "-q", "-m", "base"))
            os.rename(self.store, store)
            self.store = store

    def command(self, *words):
        settings = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
        return Command(["git", *settings, f"--git-dir={self.store}", *words])


class Bench:
    """What the rows share."""

    def __init__(self, binaries, data, quick):
        self.binaries = binaries
        self.data = data
        self.quick = quick
        self.files = 2_000 if quick else 100_000
        self.rounds = 5 if quick else 60
        self.few = 3 if quick else 15
        self.repetitions = 1 if quick else 5
        self.builds = 1 if quick else 15
        self.many = 50 if quick else 1_000
        self.tree = data.tree(self.files)
        self.parts = {}
        self.served = None

    def bed(self, name):
        return os.path.join(self.data.base, name)

    def part(self, name, user=None, tree=None, bed="bed", **options):
        """What a part measured; each is measured once in a run."""
        if (name, user) not in self.parts:
            options = {"rounds": self.rounds, "files": self.files, **options}
            words = [word for key, value in options.items() for word in (f"--{key}", value)]
            self.parts[name, user] = self.measured(user, [tree or self.tree, "--part", name, *words], bed)
        return self.parts[name, user]["samples"]

    def measured(self, user, words, bed):
        prefix = []
        if user is not None:
            bed = f"{bed}-{user}"
            os.makedirs(self.bed(bed), exist_ok=True)
            os.chown(self.bed(bed), user, user)
            prefix = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]
        program = os.path.join(self.binaries, "workspace-bench")
        command = Command([*prefix, program, "workspaces", self.bed(bed), *words])
        return json.loads(run(command, capture=True).output)

    @functools.cache  # noqa: B019
    def work_tree(self):
        """A work tree of git's, and the seconds it took to make it."""
        git, path = Git(self.bed("git"), self.tree), self.data.unused("work-tree")
        sync_filesystem(self.data.base)
        # One of the same path may be known from a run before.
        return path, run(git.command("worktree", "add", "-f", "-q", "--detach", path)).wall

    def settle(self):
        """Lets files become older than what comes next."""
        time.sleep(1.1)

    def sandboxes(self):
        """The server for all rows; it is started by the first."""
        if self.served is None:
            self.part("create")
            snapshot = self.parts["create", None]["snapshot"]
            self.served = Sandboxes(self.binaries, os.path.join(self.bed("bed"), "store"), snapshot, self.tree)
        # The server ends connections that nobody used for a while.
        self.served.client = self.served.server.client()
        return self.served

    def docker_runs(self, count):
        """Seconds to the first byte of containers with the tree as their workspace."""
        docker = Docker()
        try:
            words = docker.run()
            at = words.index("bench")
            words[at:at] = ["-v", f"{self.tree}:/workspace"]
            return [time_to_output(words) for _ in range(count)]
        finally:
            docker.stop()

    @functools.cache  # noqa: B019
    def package(self, name):
        """Where the source of a package is that this repository is built with."""
        packages = cargo_metadata("--locked", "--offline")["packages"]
        found = next(package for package in packages if package["name"] == name)
        return os.path.dirname(found["manifest_path"])

    def progress(self, what):
        print(f"    {what}", file=sys.stderr)

    def stop(self):
        if self.served is not None:
            self.served.stop()


def main(words, usage):
    return run_benchmark(words, usage, REPORT, ROWS, measure, caveats, needs_root="mounting needs root")


def measure(session):
    machine.install_missing([*PACKAGES, *NEEDED])
    binaries = build_server("workspace-bench")
    data = open_data(session.quick, binaries)
    bench = Bench(binaries, data, session.quick)
    try:
        session.describe(data.base)
        session.measure_rows(bench)
    finally:
        bench.stop()
        data.clean()


def caveats(results):
    facts = results["machine"]
    overridden = list_settings(OVERRIDDEN)
    return [
        f"{describe_machine(facts)}, as {facts['user']}. Each row says what the load was before it.",
        f"- Filesystem: {facts['filesystem']}; it shares no blocks, so `cp --reflink=auto` copies, where it does not say btrfs or xfs.",
        "- The tree comes from the seeded generator of the state engine's benchmark: 100,000 files, 1 GB, a dozen files a "
        "directory, sizes log-normal with a median of 4 KiB. It is in the page cache.",
        "- Ours and what is mounted bare take turns in one process; the peers that write the whole tree come after "
        "that, the filesystem written out before each, once.",
        "- Over HTTP, server, client and guests share the machine; the client is Python, whose share is in every number. "
        f"Limits that are overridden: {overridden}.",
        f"- Docker is started with `{' '.join(HARDENED)}`, `-v` and an image of busybox: its containers share one writable "
        "directory, ours have one each.",
    ]
