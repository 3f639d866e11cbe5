"""Builds the Python module of the state engine and its counterpart in Rust, runs the rows, writes the report."""

import datetime
import os
import subprocess
import sys

import machine
import sdk_state_rows
from report import bars, details, reasons
from sandbox_main import place, save, typed
from sdk_state_rows import MODULE, PYTHON, TARGET, WARM_UP, Bench
from timing import Command, run

ROWS = {"step": sdk_state_rows.step}


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
        "- Both languages run the same release build of the state engine, on the same store, in turns of a process "
        "each. Each turn has its own random changes: 4 KiB of text that no other turn writes.",
        f"- The first {WARM_UP} steps of a turn are not counted: they read directories that a search has in memory.\n",
        bars(rows),
        reasons(page),
        *(details(row).replace("`bench/run ", "`bench/sdk-state ") for row in rows),
        "## Again\n\n`bench/sdk-state` measures everything; `bench/sdk-state --help` says how to measure less.\n",
    ]
    with open(page, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))
