"""Builds the Python module of the state engine and its counterpart in Rust, runs the rows, writes the report."""

import os
import subprocess

import sdk_state_rows
from benchmark import run_benchmark
from report import Report, describe_machine
from sdk_state_rows import MODULE, PYTHON, TARGET, WARM_UP, Bench
from timing import Command, run

ROWS = {"step": sdk_state_rows.step}
REPORT = Report(
    "sdk-state", "State engine in Python: overhead over Rust", quick_scale="little data and few repetitions"
)


def main(words, usage):
    return run_benchmark(words, usage, REPORT, ROWS, measure, caveats)


def measure(session):
    build()
    session.results["python"] = run(Command([PYTHON, "--version"]), capture=True).output
    with Bench(session.quick) as bench:
        session.describe(bench.directory)
        session.measure_rows(bench)


def build():
    environment = {**os.environ, "WORKSPACE_STATE_PROFILE": "release", "CARGO_TARGET_DIR": TARGET}
    subprocess.run([os.path.join(MODULE, "install.sh")], check=True, env=environment)
    command = ["cargo", "build", "--quiet", "--release", "--example", "steps"]
    subprocess.run(command, check=True, cwd=MODULE, env=environment)


def caveats(results):
    facts = results["machine"]
    return [
        f"{describe_machine(facts)}, as {facts['user']}; {results['python']}.",
        f"- Filesystem: {facts['filesystem']}. Load average when the run began: {facts['load_before']}.",
        "- Both languages run the same release build of the state engine, on the same store, in turns of a process "
        "each. Each turn has its own random changes: 4 KiB of text that no other turn writes.",
        f"- The first {WARM_UP} steps of a turn are not counted: they read directories that a search has in memory.",
    ]
