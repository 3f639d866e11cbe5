"""The row about traces: a snapshot after each command that changed files."""

import statistics
import time

from row import Row
from sandbox_rows import OURS, add

TEN_FILES = "for i in 0 1 2 3 4 5 6 7 8 9; do echo $$ > file-$i; done"


def trace(bench):
    row = Row("trace", "a snapshot after each command", "REST run over a kept connection, with `trace: command` and without, in turns: a command that changes 10 files, and `true`")
    samples = {(traced, what): [] for traced in (True, False) for what in ("10 files", "`true`")}
    with bench.server() as server:
        client = server.client()
        sandboxes = {True: client.create(trace="command"), False: client.create()}
        commands = {"10 files": TEN_FILES, "`true`": "true"}

        def measured(traced, what):
            began = time.perf_counter()
            result = client.run(sandboxes[traced], commands[what])
            samples[traced, what].append(time.perf_counter() - began)
            return result

        for _ in range(20):
            for traced in (True, False):
                client.run(sandboxes[traced], TEN_FILES)
                client.run(sandboxes[traced], "true")
        for turn in range(bench.rounds * 4):
            order = (True, False) if turn % 2 else (False, True)
            for traced in order:
                result = measured(traced, "10 files")
                assert ("snapshot" in result) == traced, result
            # The times of the files are older than a tick of the clock when the next command ends.
            time.sleep(0.03)
            client.run(sandboxes[True], "true")
            for traced in order:
                result = measured(traced, "`true`")
                assert "snapshot" not in result, result
    for (traced, what), taken in samples.items():
        add(row, OURS, f"{what}, {'traced' if traced else 'not traced'}", taken)

    def added(what):
        return (statistics.median(samples[True, what]) - statistics.median(samples[False, what])) * 1000

    row.at_most("≤ 3 ms added to a command that changed 10 files", added("10 files"), 3, "ms")
    row.at_most("≤ 0.2 ms added to one that changed none", added("`true`"), 0.2, "ms")
    return row
