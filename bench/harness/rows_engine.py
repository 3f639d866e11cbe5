"""Rows measured inside one process, through the library: no process start, the store is open."""

import json

from row import Row
from timing import Command, run

LIBRARY = "library, in one process with an open store"
OURS = "workspace"


class Engine:
    """The library's numbers, measured once for all rows that use them."""

    def __init__(self, bench):
        self.bench = bench
        self.numbers = None

    def get(self):
        if self.numbers is None:
            words = ["engine", self.bench.data.directory("engine"), "--files", self.bench.scale.many_files]
            words += ["--rounds", self.bench.scale.repetitions, "--json"]
            self.numbers = json.loads(run(Command([self.bench.generator, *words]), capture=True).output)
        return self.numbers


def add(row, tool, what, latency):
    """`latency` describes many operations: its p10 and p90 stand for the range, one freak would hide it."""
    row.add(
        tool,
        what,
        "µs",
        {"median": latency["p50"], "min": latency["p10"], "max": latency["p90"], "samples": latency["count"]},
    )


RANGE = "The range of library rows is p10 to p90 of single operations."


def commit_buffered(bench):
    numbers = bench.engine.get()
    row = Row("commit-buffered", f"virtual tree of {numbers['files']:,} files: change 1, commit buffered", LIBRARY)
    add(row, OURS, "commit", numbers["buffered"])
    add(row, OURS, "the first after opening the store", numbers["buffered_first"])
    row.at_most("p50 ≤ 150 µs", row.median(OURS, "commit"), 150, "µs")
    row.notes.append(RANGE)
    row.notes.append("The bar is for directories that are in the store's memory, as in a search that has taken some steps.")
    return row


def commit_synced(bench):
    numbers = bench.engine.get()
    row = Row("commit-synced", f"virtual tree of {numbers['files']:,} files: change 1, commit synced", LIBRARY)
    add(row, OURS, "commit", numbers["synced"])
    add(row, "append of 4 KiB + fdatasync", "append", numbers["append"])
    ratio = row.median(OURS, "commit") / row.median("append of 4 KiB + fdatasync", "append")
    row.at_most("≤ 1.5 × one 4 KiB append + fdatasync", ratio, 1.5, "×")
    fastest = numbers["synced"]["p10"] / numbers["append"]["p10"]
    row.notes.append(f"At p10, where other programs on the machine count least, the ratio is {fastest:.2f}.")
    return row


def commit_group(bench):
    numbers = bench.engine.get()
    row = Row("commit-group", "the same, synced, 16 committers", LIBRARY)
    for name, what in (("one", "1 committer"), ("sixteen", "16 committers")):
        rates = numbers["rates"][name]
        row.add(OURS, what, "commits/s", {**rates})
    ratio = row.median(OURS, "16 committers") / row.median(OURS, "1 committer")
    row.at_least("≥ 4 × the commits/s of one", ratio, 4, "×")
    return row


def clone_and_restore(bench):
    numbers = bench.engine.get()
    row = Row("clone-restore", f"clone of a virtual tree; restore of a snapshot of {numbers['files']:,} files", LIBRARY)
    add(row, OURS, "clone", numbers["clone"])
    add(row, OURS, "restore", numbers["restore"])
    add(row, OURS, "restore and read one file", numbers["restore_read"])
    add(row, OURS, "open the store", numbers["open"])
    row.at_most("clone ≤ 1 µs", row.median(OURS, "clone"), 1, "µs")
    row.at_most("restore ≤ 200 µs", row.median(OURS, "restore"), 200, "µs")
    return row


def diff(bench):
    numbers = bench.engine.get()
    row = Row("diff", f"diff of two trees of {numbers['files']:,} files, 10 changed", LIBRARY)
    add(row, OURS, "diff", numbers["diff"])
    add(row, OURS, "the first after opening the store", numbers["diff_first"])
    row.at_most("≤ 300 µs", row.median(OURS, "diff"), 300, "µs")
    row.notes.append("The bar is for directories that are in the store's memory; the first diff has to read them.")
    return row
