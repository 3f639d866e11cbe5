"""The row about pausing and resuming sandboxes."""

import statistics
import time

from row import Row
from sandbox_rows import OURS, add

CHANGED = "for i in $(seq 10); do date +%N > file-$i; done"


def timed(client, sandbox, operation, body, state):
    """Seconds until the sandbox is in that state."""
    began = time.perf_counter()
    answer = client.ask("POST", f"/api/v1/sandboxes/{sandbox}/{operation}", body)
    took = time.perf_counter() - began
    assert answer["state"] == state, answer
    return took


def pause(bench):
    row = Row("pause", "pause and resume", "REST over a kept connection; before each pause a command changes 10 files; the time of a resume ends when the sandbox can run a command")
    times = {}
    with bench.server() as server:
        client = server.client()
        for keep in ("disk", "memory"):
            sandbox = client.create()
            times[keep] = ([], [])
            for number in range(bench.rounds + 2):
                client.run(sandbox, CHANGED)
                paused = timed(client, sandbox, "pause", {"keep": keep}, "paused")
                # The files of the workspace are removed after the answer.
                time.sleep(0.2)
                resumed = timed(client, sandbox, "resume", {}, "running")
                if number >= 2:
                    times[keep][0].append(paused)
                    times[keep][1].append(resumed)
            names = client.run(sandbox, "ls | wc -l")["stdout"].strip()
            assert names == "10", names
            client.delete(sandbox)
    for keep, (paused, resumed) in times.items():
        add(row, OURS, f"pause, {keep}", paused)
        add(row, OURS, f"resume, {keep}", resumed)
    row.at_most("pause to disk: p50 ≤ 30 ms", statistics.median(times["disk"][0]) * 1000, 30, "ms")
    row.at_most("resume from disk: p50 ≤ 30 ms", statistics.median(times["disk"][1]) * 1000, 30, "ms")
    return row
