"""Rows of the lazy mount."""

import os
import time

from data import regular_files
from row import Row
from rows_command import COMMAND, OURS, Samples
from timing import Command, run, run_all, summary


class Mounted:
    """A mount that is taken away at the end, whatever happens."""

    def __init__(self, tool, point):
        self.tool = tool
        self.point = point

    def __enter__(self):
        run(self.tool.command("mount", self.point))
        return self

    def __exit__(self, *_):
        run(self.tool.command("umount", self.point))


def mount_and_read(bench):
    row = Row("mount", "mount and read the first file", COMMAND)
    for files in sorted({min(1_000, bench.scale.files), bench.scale.many_files}):
        tree = bench.data.tree(files)
        tool = bench.workspace()
        tool.reset()
        run_all(tool.snapshot(tree, "base"))
        snapshot = bench.latest(tool)
        point = bench.data.directory("mount-point")
        wanted = regular_files(tree, 1)[0]
        path = os.path.join(point, snapshot, os.path.relpath(wanted, tree))
        times = [time_first_read(tool, point, path, wanted) for _ in range(bench.scale.fast_repetitions)]
        what = f"{files:,} files"
        row.add(OURS, what, "ms", summary(times, 1e3))
        row.at_most(f"≤ 20 ms, {what}", row.median(OURS, what), 20, "ms")
        bench.progress(row, files, OURS)
    row.notes.append("From starting `workspace mount` to the last byte of the file, and the mount process is new each time.")
    return row


def time_first_read(tool, point, path, original):
    start = time.perf_counter()
    with Mounted(tool, point):
        with open(path, "rb") as file:
            content = file.read()
        elapsed = time.perf_counter() - start
    with open(original, "rb") as file:
        if content != file.read():
            raise AssertionError(f"{path} differs from {original}")
    return elapsed


def grep(bench):
    row = Row("grep", f"grep -r through the lazy mount of {bench.scale.files:,} files", "no process of ours starts; the first time with a new mount in each repetition, while the directory is in the page cache")
    tree = bench.data.tree(bench.scale.files)
    tool = bench.workspace()
    tool.reset()
    run_all(tool.snapshot(tree, "base"))
    snapshot = bench.latest(tool)
    point = bench.data.directory("mount-point")
    samples = Samples()
    view = os.path.join(point, snapshot)
    for _ in range(bench.scale.repetitions):
        with Mounted(tool, point):
            samples.add(OURS, "first time", search(view))
    with Mounted(tool, point):
        # Once each before measuring: the bar is about a warm cache on both sides.
        search(view), search(tree)
        for _ in range(bench.scale.repetitions):
            samples.add(OURS, "second time", search(view))
            samples.add("the directory itself", "second time", search(tree))
            bench.progress(row, "", OURS)
    samples.into(row)
    directory = row.median("the directory itself", "second time")
    row.at_most("first time: ≤ 3 × the directory itself", row.median(OURS, "first time") / directory, 3, "×")
    ratio = row.median(OURS, "second time") / directory
    row.at_most("≤ 1.3 × the same on the disk's filesystem", ratio, 1.3, "×")
    return row


def search(directory):
    """Seconds to look for something that is nowhere."""
    return run(Command(["grep", "-r", "no such text in any file", directory], allowed=(1,))).wall
