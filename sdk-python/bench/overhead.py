#!/usr/bin/env python3
"""Measures the SDK: its import, the overhead of `run` over raw HTTP, and streams of output.

Needs a server in WORKSPACE_API_URL, with RATE_LIMIT=off, and its key in WORKSPACE_API_KEY.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Callable, List

import httpx

from workspace_sdk.sync import Sandbox, WorkspaceClient

RUNS = 100
STREAM_BYTES = 100_000_000


def milliseconds(function: Callable[[], object], count: int) -> List[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1000)
    return times


def measure_import() -> None:
    def start(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    empty = statistics.median(milliseconds(start("pass"), 15))
    full = statistics.median(milliseconds(start("import workspace_sdk"), 15))
    print(f"import workspace_sdk: {full - empty:.0f} ms")


def measure_run(client: WorkspaceClient, sandbox: Sandbox) -> None:
    url = f"{client.config.api_url}/api/v1/sandboxes/{sandbox.id}/process/run"
    with httpx.Client(headers={"authorization": f"Bearer {client.config.api_key}"}, timeout=60) as http:
        raw: List[float] = []
        ours: List[float] = []
        # Alternating, so that both see the same load of the machine.
        for _ in range(RUNS):
            raw += milliseconds(lambda: http.post(url, json={"command": "true"}).json(), 1)
            ours += milliseconds(lambda: sandbox.process.run("true"), 1)
    print(f"run: {statistics.median(ours):.2f} ms, raw HTTP {statistics.median(raw):.2f} ms (medians of {RUNS})")


def measure_stream(sandbox: Sandbox) -> None:
    size, start = 0, time.perf_counter()
    command = f"yes 0123456789abcdef0123456789abcdef | head -c {STREAM_BYTES}"
    for event in sandbox.process.run_stream(command, timeout=0):
        if event.type == "stdout":
            size += len(event.bytes)
    assert size == STREAM_BYTES
    print(f"stream: {size / (time.perf_counter() - start) / 1e6:.0f} MB/s")


if __name__ == "__main__":
    measure_import()
    with WorkspaceClient() as client, client.sandbox.create(template="base") as sandbox:
        measure_run(client, sandbox)
        measure_stream(sandbox)
