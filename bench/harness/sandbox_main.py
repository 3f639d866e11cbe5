"""Builds, starts the peers, runs the rows, writes the report."""

import os
import subprocess
import sys

import file_rows
import machine
import pause_rows
import preview_rows
import root_rows
import sandbox_rows
import trace_rows
from benchmark import run_benchmark
from programs import ROOT, build_server
from report import Picture, Report, describe_machine, list_settings
from sandbox_client import OVERRIDDEN, Server
from sandbox_peers import HARDENED, PACKAGES, Bubblewrap, Docker, Oci

ROWS = {
    "warm": sandbox_rows.warm,
    "cold": sandbox_rows.cold,
    "fifty": sandbox_rows.fifty,
    "parallel": sandbox_rows.parallel,
    "ordinary": sandbox_rows.ordinary,
    "run": sandbox_rows.run_true,
    "stream": sandbox_rows.stream,
    "echo": sandbox_rows.echo,
    "idle": sandbox_rows.idle,
    "agent": sandbox_rows.agent,
    "api": sandbox_rows.api,
    "files": file_rows.small,
    "transfer": file_rows.transfer,
    "archive": file_rows.archive,
    "pause": pause_rows.pause,
    "trace": trace_rows.trace,
    "root": root_rows.root,
    "preview": preview_rows.requests,
    "sockets": preview_rows.sockets,
}
PANELS = {"warm": "create and run", "cold": "create and run", "fifty": "all 50", "run": "one command"}
WITH_PEERS = {"warm", "cold", "fifty", "parallel", "ordinary", "run", "archive"}
INSIDE = "WORKSPACE_BENCH_INSIDE"
REPORT = Report(
    "sandbox",
    "Sandboxes: speed and memory",
    quick_scale="few repetitions",
    picture=Picture("Sandboxes and their peers", PANELS),
)


class Bench:
    """What the rows share."""

    def __init__(self, binaries, quick, peers):
        self.binaries = binaries
        self.quick = quick
        self.rounds = 5 if quick else 50
        if peers:
            self.docker = Docker()
            configuration = self.docker.configuration()
            self.oci = [Oci(program, configuration) for program in ("runc", "crun")]
            self.bubblewrap = Bubblewrap()
        self.peers = peers

    def server(self, **settings):
        return Server(self.binaries, **settings)

    def stop(self):
        if self.peers:
            for peer in (*self.oci, self.bubblewrap, self.docker):
                peer.stop()


def main(words, usage):
    def measure_inside(session):
        if INSIDE not in os.environ:
            sys.exit(start_inside(words))
        measure(session)

    return run_benchmark(words, usage, REPORT, ROWS, measure_inside, caveats, needs_root="the peers need root")


def start_inside(words):
    """Runs this again in a mount namespace of its own: crun refuses machines that mix both kinds of control groups."""
    script = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
    again = [sys.executable, os.path.join(ROOT, "bench/sandbox"), *words]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *again], env={**os.environ, INSIDE: "1"}, check=False
    ).returncode


def measure(session):
    machine.install_missing(PACKAGES)
    binaries = build_server("workspace-bench")
    bench = Bench(binaries, session.quick, bool(WITH_PEERS & set(session.chosen)))
    try:
        session.describe(binaries)
        session.measure_rows(bench)
    finally:
        bench.stop()


def caveats(results):
    facts = results["machine"]
    overridden = list_settings(OVERRIDDEN)
    return [
        f"{describe_machine(facts)}, as {facts['user']}.",
        "- Server, client and peers share the machine; the client is Python, whose share is in every number of ours, "
        "but for rates over many connections, where it is a Rust program.",
        "- The tools take turns within each repetition. Each row says what the load was before it.",
        f"- Limits that are overridden: {overridden}.",
        f"- Docker is started with `{' '.join(HARDENED)}` and an image of busybox; runc and crun with the configuration "
        "that Docker makes of that, its list of system calls included. Deleting is not measured for anyone.",
    ]
