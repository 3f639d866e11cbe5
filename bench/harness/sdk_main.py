"""Builds the SDKs and the server, runs the rows, writes the report."""

import os
import subprocess

import sdk_rows
from benchmark import run_benchmark
from programs import ROOT, build_server
from report import Report, describe_machine, list_settings
from sandbox_client import OVERRIDDEN, Server
from sdk_programs import NodeClient, PythonClient

ROWS = {
    "run": sdk_rows.run,
    "concurrent": sdk_rows.concurrent,
    "stream": sdk_rows.stream,
    "import": sdk_rows.import_time,
    "bundle": sdk_rows.bundle,
}
# Limits that would be measured instead of the SDKs, beside those of all benchmarks.
SETTINGS = {"MAX_COMMANDS": "4000", "DEFAULT_PROCESSES": "4096", "POOL_SIZE": "2"}
REPORT = Report("sdk", "SDKs: overhead, streams and size", quick_scale="few repetitions")


class Bench:
    """What the rows share."""

    def __init__(self, binaries, quick):
        self.binaries = binaries
        self.quick = quick
        self.python = os.path.join(ROOT, "sdk-python/.venv/bin/python")
        self.typescript = os.path.join(ROOT, "sdk-typescript")

    def server(self):
        return Server(self.binaries, **SETTINGS)

    def clients(self, server):
        """Clients in both languages, in processes of their own."""
        return [NodeClient(server.port), PythonClient(self.python, server.port)]


def main(words, usage):
    return run_benchmark(words, usage, REPORT, ROWS, measure, caveats)


def measure(session):
    binaries = build_server()
    build_sdks()
    bench = Bench(binaries, session.quick)
    session.describe(binaries)
    session.results["versions"] = versions(bench)
    try:
        session.measure_rows(bench)
    finally:
        Server.destroy_all()


def build_sdks():
    """Installs the pinned packages of both SDKs, and builds that for TypeScript."""
    for directory, script in (
        ("sdk-typescript", ". ./install.sh && node scripts/build.mjs"),
        ("sdk-python", ". scripts/environment.sh"),
    ):
        subprocess.run(["sh", "-c", script], cwd=os.path.join(ROOT, directory), check=True)


def versions(bench):
    node = subprocess.run(["node", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    python = subprocess.run([bench.python, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return f"Node.js {node.removeprefix('v')}, {python}"


def caveats(results):
    facts = results["machine"]
    overridden = list_settings({**OVERRIDDEN, **SETTINGS})
    return [
        f"{describe_machine(facts)}, as {facts['user']}; {results['versions']}.",
        "- Server and clients share the machine. Each client is a process that runs through all repetitions; the clients "
        "and the SDKs and plain HTTP take turns.",
        "- The overhead is the difference between the medians of the SDK and of the HTTP client that it is built on "
        "(`fetch`, httpx), with the same request. Cheaper clients of the standard libraries are shown beside them.",
        f"- Limits that are overridden: {overridden}.",
    ]
