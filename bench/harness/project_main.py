"""Builds, makes the trees, runs the rows about projects, writes the report."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import traceback

import postgres
import project_followers
import project_policies
import project_rows
from benchmark import measure_row, run_benchmark
from data import open_data
from machine import git_version, install_missing
from programs import build_server
from report import Picture, Report, describe_machine, list_settings
from sandbox_client import OVERRIDDEN, Server, kill_sandboxes, unmount_below
from sandbox_peers import Package

ROWS = {
    "agents": project_rows.agents,
    "lines": project_rows.lines,
    "counter": project_rows.counter,
    "readers": project_followers.readers,
    "followers": project_followers.followers,
    "events": project_followers.events,
    "view": project_policies.view,
    "policy": project_policies.policy,
    "write-back": project_rows.write_back,
}
PANELS = {"agents": "all landed", "write-back": "one agent"}
WITH_DATABASES = {"agents", "lines", "counter"}
LIMITS = {"MAX_SANDBOXES": "4000", "MAX_QUEUED_CREATIONS": "2000", "POOL_SIZE": "0"}
# Seconds after which a row that does not end counts as failed.
ROW_TIMEOUT = 2400
REPORT = Report("projects", "Projects: speed", quick_scale="few agents", picture=Picture("Projects, and git", PANELS))


class Bench:
    """What the rows share."""

    def __init__(self, binaries, data, quick):
        self.binaries = binaries
        self.data = data
        self.agents = 10 if quick else 100
        self.files = 1_000 if quick else 10_000
        self.large_files = 1_000 if quick else 50_000
        self.view_files = 2_000 if quick else 100_000
        self.rounds = 1 if quick else 3
        self.heads = 3 if quick else 10
        self.followers = 20 if quick else 1_000
        self.rules = 100 if quick else 1_000
        self.ruled_files = self.rules // 2
        self.many_changes = 50 if quick else 1_000
        self.databases = {"SQLite": None}
        # Databases that are not measured, with the reason.
        self.without = {}
        self.postgres = None
        self.names = 0

    def find_databases(self):
        """PostgreSQL, if there is one: the database that is given, or a server of our own."""
        if "DATABASE_URL" in os.environ:
            self.databases["PostgreSQL"] = os.environ["DATABASE_URL"]
            return "the database that `DATABASE_URL` names"
        directory = postgres.programs()
        if directory is None:
            self.without["PostgreSQL"] = "it is not installed, and `DATABASE_URL` is not set"
            return None
        self.postgres = postgres.Postgres(directory)
        self.databases["PostgreSQL"] = None
        return f"{self.postgres.version()} with the default settings, on a Unix socket"

    def tree(self):
        return self.data.tree(self.files)

    def server(self, database="SQLite"):
        """A new server with an empty catalog. Its files stay until the run ends (see `Data`)."""
        settings = dict(LIMITS)
        if database != "SQLite":
            self.names += 1
            settings["DATABASE_URL"] = self.databases[database] or self.postgres.database(f"bench{self.names}")
        return Server(self.binaries, home=self.data.directory("server"), **settings)

    def stop(self):
        Server.destroy_all()
        if self.postgres is not None:
            self.postgres.stop()


class RowTimeout(Exception):
    """A row took too long."""


def main(words, usage):
    needs_root = "sandboxes of this benchmark need root"
    return run_benchmark(words, usage, REPORT, ROWS, measure_until_interrupted, caveats, needs_root=needs_root)


def measure_until_interrupted(session):
    """Measures rows. Returns whether one failed. Exits without a report if it is interrupted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        return measure(session)
    except KeyboardInterrupt:
        print("interrupted; what was measured before is kept", file=sys.stderr)
        sys.exit(130)


def interrupt(*_):
    raise KeyboardInterrupt


def measure(session):
    """Measures rows. Returns whether one failed."""
    install_missing([Package("git", "git"), Package("cc", "gcc")])
    binaries = build_server("workspace-bench")
    data = open_data(session.quick, binaries)
    lock = open(os.path.join(data.base, "lock"), "w", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"error: another run uses {data.base}")
    clean_up_after_another(data)
    bench = Bench(binaries, data, session.quick)
    session.describe(data.base)
    session.results["git"] = git_version()
    failed = session.results.setdefault("failed", {})
    try:
        if WITH_DATABASES & set(session.chosen):
            session.results["postgres"] = bench.find_databases()
        for name in session.chosen:
            data.make_room()
            row, reason = try_row(name, bench)
            session.results["rows"].pop(name, None)
            failed.pop(name, None)
            if row is None:
                failed[name] = reason
                session.save()
            else:
                session.keep(name, row)
    finally:
        print("  cleaning", file=sys.stderr)
        # A second Ctrl-C must not stop it.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        bench.stop()
        data.clean()
    return any(name in failed for name in session.chosen)


def clean_up_after_another(data):
    """Ends and removes what a run left behind that was killed."""
    for name in os.listdir(data.scratch):
        kill_sandboxes(os.path.join(data.scratch, name))
    unmount_below(data.scratch)
    if os.listdir(data.scratch):
        data.clean()


def try_row(name, bench):
    """A row, or the reason why there is none. Nothing of it runs afterwards."""

    def expired(*_):
        raise RowTimeout(f"it did not end within {ROW_TIMEOUT} s")

    signal.signal(signal.SIGALRM, expired)
    signal.alarm(ROW_TIMEOUT)
    try:
        return measure_row(name, lambda: ROWS[name](bench)), None
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            Server.destroy_all()


def caveats(results):
    facts = results["machine"]
    overridden = list_settings({**OVERRIDDEN, **LIMITS})
    return [
        f"{describe_machine(facts)}. Each row says what the load was before it. Peer: {results['git']}.",
        f"- Catalog: SQLite; where it is named, PostgreSQL: {results.get('postgres') or 'not measured'}. Both have each "
        "commit on disk when they answer.",
        "- Server, sandboxes and clients share the machine; the client is Python, with 16 connections. "
        f"Limits that are overridden: {overridden}.",
        "- A completion is counted from the request, which freezes and commits the workspace, until the head has its "
        "changes. Everything that is acknowledged is on disk.",
        "- git merges one branch after another into a work tree, without syncing anything to disk.",
    ]
