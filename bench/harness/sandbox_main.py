"""Builds, starts the peers, runs the rows, writes the report."""

import datetime
import json
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
from data import bench_directory
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
    name="sandbox",
    title="Sandboxes: speed and memory",
    quick_scale="few repetitions",
    command="bench/sandbox",
    picture=Picture("Times by tool", "Sandboxes and their peers", PANELS),
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


def typed(words, usage, rows):
    """The rows that were typed (all, if none was) and the options. What makes no sense ends with the usage."""
    options = {word for word in words if word.startswith("-")}
    chosen = [word for word in words if not word.startswith("-")]
    unknown = (options - {"--quick", "--render"}) | (set(chosen) - set(rows))
    if unknown:
        print(usage, file=sys.stderr)
        print(f"rows: {' '.join(rows)}", file=sys.stderr)
        sys.exit(0 if unknown <= {"-h", "--help"} else 2)
    return chosen or list(rows), options


def main(words, usage):
    chosen, options = typed(words, usage, ROWS)
    quick = "--quick" in options
    output, results = place(quick)
    if "--render" not in options:
        if os.geteuid() != 0:
            print("error: the peers need root", file=sys.stderr)
            return 1
        if INSIDE not in os.environ:
            return inside(words)
        measure(chosen, quick, results, output)
    render(results, output)
    return 0


def inside(words):
    """Again in a mount namespace of its own: crun refuses machines that mix both kinds of control groups."""
    script = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
    again = [sys.executable, os.path.join(ROOT, "bench/sandbox"), *words]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *again], env={**os.environ, INSIDE: "1"}, check=False
    ).returncode


def place(quick, name="sandbox"):
    """Where the report goes, and what was measured before."""
    output = os.path.join(ROOT, "docs/benchmarks")
    if quick:
        output = bench_directory()
        os.makedirs(output, exist_ok=True)
    path = os.path.join(output, f"{name}.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return output, json.load(file)
    return output, {"rows": {}}


def save(results, output, name="sandbox"):
    with open(os.path.join(output, f"{name}.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


def measure(chosen, quick, results, output):
    machine.install_missing(PACKAGES)
    binaries = build_server("workspace-bench")
    bench = Bench(binaries, quick, bool(WITH_PEERS & set(chosen)))
    try:
        results.update(quick=quick, date=datetime.date.today().isoformat(), machine=machine.describe(binaries))
        for name in chosen:
            load = round(os.getloadavg()[0], 2)
            print(f"  {name}", file=sys.stderr)
            row = ROWS[name](bench).to_json()
            row["load_before"] = load
            results["rows"][name] = row
            save(results, output)
    finally:
        bench.stop()


def render(results, output):
    facts = results["machine"]
    overridden = list_settings(OVERRIDDEN)
    caveats = [
        f"{describe_machine(facts)}, as {facts['user']}.",
        "- Server, client and peers share the machine; the client is Python, whose share is in every number of ours, "
        "but for rates over many connections, where it is a Rust program.",
        "- The tools take turns within each repetition. Each row says what the load was before it.",
        f"- Limits that are overridden: {overridden}.",
        f"- Docker is started with `{' '.join(HARDENED)}` and an image of busybox; runc and crun with the configuration "
        "that Docker makes of that, its list of system calls included. Deleting is not measured for anyone.",
    ]
    REPORT.write(results, output, ROWS, caveats)
