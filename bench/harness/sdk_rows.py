"""The rows about the SDKs. Plain HTTP and the SDKs take turns, and so do the languages."""

import contextlib
import os
import statistics
import subprocess
import time

from row import Row
from timing import summary

# Milliseconds that an SDK may add to a command, and MB/s that its streams reach.
OVERHEAD = {"TypeScript": 1, "Python": 2}
RATE = {"TypeScript": 100, "Python": 50}
BASE = {"TypeScript": "fetch", "Python": "httpx"}
STREAM_BYTES = 100_000_000
CONCURRENT = 1000
IMPORT_BAR = 150
BUNDLE_BAR = 40_000
# Commands of one turn of a client.
TURN = 10


@contextlib.contextmanager
def prepared(bench):
    """A sandbox, the clients in both languages, and a client of ours."""
    with bench.server() as server, contextlib.ExitStack() as stack:
        client = server.client()
        sandbox = client.create()
        yield sandbox, [stack.enter_context(program) for program in bench.clients(server)], client


def run(bench):
    row = Row("run", "one command", "`true` in one sandbox, over connections that are kept")
    times = {}
    turns = 5 if bench.quick else 50
    with prepared(bench) as (sandbox, clients, _):
        for turn in range(-1, turns):
            for client in clients:
                works = ["run", "run_async"] if client.name == "Python" else ["run"]
                for work in works:
                    kind = f"{client.name}, async" if work == "run_async" else client.name
                    measured = client.ask(work, sandbox=sandbox, count=TURN)["times"]
                    # The first turn makes the connections, and warms the compilers.
                    for tool, samples in measured.items() if turn >= 0 else ():
                        times.setdefault((kind, tool), []).extend(samples)
    for (kind, tool), samples in times.items():
        row.add(f"{kind}: {tool}", "run", "ms", summary(samples))
    for kind in dict.fromkeys(kind for kind, _ in times):
        language = kind.split(",")[0]
        added = statistics.median(times[kind, "SDK"]) - statistics.median(times[kind, BASE[language]])
        bar = OVERHEAD[language]
        row.at_most(f"{kind}: ≤ {bar} ms over {BASE[language]}", added, bar, "ms")
    return row


def concurrent(bench):
    count = CONCURRENT // 10 if bench.quick else CONCURRENT
    row = Row("concurrent", f"{count:,} commands at once", "`echo` with a number, on one client, in one sandbox")
    rounds = 1 if bench.quick else 3
    with prepared(bench) as (sandbox, clients, _):
        failures = {client.name: [] for client in clients}
        times = {client.name: [] for client in clients}
        for _ in range(rounds):
            for client in clients:
                result = client.ask("concurrent", sandbox=sandbox, count=count)
                failures[client.name] += result["failures"]
                times[client.name].append(result["took"])
    for name, failed in failures.items():
        row.add(name, "all commands", "ms", summary(times[name]))
        row.at_most(f"{name}: no error", len(failed), 0, "errors")
        row.notes += [f"{name}: {text}" for text in sorted(set(failed))[:5]]
    return row


def stream(bench):
    size = STREAM_BYTES // 10 if bench.quick else STREAM_BYTES
    row = Row("stream", f"{size // 1_000_000} MB of output", "`runStream` of a command that writes text; plain HTTP reads the same bytes")
    rounds = 2 if bench.quick else 7
    rates = {}
    with prepared(bench) as (sandbox, clients, plain):
        for _ in range(rounds):
            for client in clients:
                took = client.ask("stream", sandbox=sandbox, bytes=size)["took"]
                rates.setdefault(client.name, []).append(size / took / 1000)
            begun = time.perf_counter()
            plain.stream(sandbox, f"yes 0123456789abcdef0123456789abcdef | head -c {size}")
            rates.setdefault("plain HTTP, not decoded", []).append(size / (time.perf_counter() - begun) / 1e6)
    for name, samples in rates.items():
        row.add(name, "output", "MB/s", summary(samples))
        if name in RATE:
            row.at_least(f"{name}: ≥ {RATE[name]} MB/s", statistics.median(samples), RATE[name], "MB/s")
    return row


def import_time(bench):
    row = Row("import", "`import workspace_sdk`", "a new interpreter each time, less an empty one; modules are compiled")
    rounds = 5 if bench.quick else 30
    # The SDK imports httpx with the first client.
    client = "import workspace_sdk; workspace_sdk.WorkspaceClient(api_key='key')"
    programs = {
        "empty": "pass",
        "httpx alone": "import httpx",
        "workspace_sdk": "import workspace_sdk",
        "workspace_sdk and a client": client,
    }
    # Users have compiled modules: pip writes them when it installs.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = {name: [] for name in programs}
    for turn in range(-1, rounds):
        for name, code in programs.items():
            begun = time.perf_counter()
            subprocess.run([bench.python, "-c", code], env=environment, check=True)
            if turn >= 0:
                times[name].append((time.perf_counter() - begun) * 1000)
    empty = statistics.median(times["empty"])
    for name in list(programs)[1:]:
        row.add(name, "import", "ms", summary([sample - empty for sample in times[name]]))
    added = statistics.median(times["workspace_sdk"]) - empty
    row.at_most(f"≤ {IMPORT_BAR} ms", added, IMPORT_BAR, "ms")
    return row


def bundle(bench):
    row = Row("bundle", "minified client", "`WorkspaceClient` and `withSandbox`, bundled for browsers with esbuild")
    printed = subprocess.run(
        ["node", "scripts/size.mjs"], cwd=bench.typescript, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    sizes = dict(line.rsplit(": ", 1) for line in printed.splitlines())
    for what, size in sizes.items():
        row.add("TypeScript", what, "bytes", summary([int(size.split()[0])]))
    row.at_most(f"≤ {BUNDLE_BAR:,} bytes", int(sizes["client"].split()[0]), BUNDLE_BAR, "bytes")
    return row
