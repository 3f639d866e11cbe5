"""The rows about merges."""

import os
import statistics

from row import Row
from sandbox_rows import OURS
from timing import Command, run, summary

GIT = "git"
SIDES = ("ours", "base", "theirs")


def text(bench):
    row = Row("text", f"{bench.files:,} text files", "ours in one process through the library; `git merge-file` once for each file")
    taken = bench.part("text", files=bench.files, rounds=bench.rounds)
    what = "1,000 files"
    row.add(OURS, what, "ms", summary(taken["samples"]["all"]))
    by_git = [sum(merged(bench, number, GIT).wall for number in range(bench.files)) for _ in range(3)]
    row.add(GIT, what, "ms", summary(by_git, 1e3))
    ratio = row.median(GIT, what) / row.median(OURS, what)
    row.at_least("in process: ≥ 20 × faster than `git merge-file`", ratio, 20, "×")
    row.notes.append(f"{taken['bytes'] / 1e6:.1f} MB in all; {taken['conflicts']} files are in conflict and are written with markers.")
    return row


def merged(bench, number, tool):
    """What merging one triple as a process takes."""
    names = [os.path.join(bench.bed("text"), side, f"{number}.txt") for side in SIDES]
    program = [GIT] if tool == GIT else [bench.workspace]
    return run(Command([*program, "merge-file", "-p", "-q", *names], allowed=range(128)))


def process(bench):
    row = Row("process", "one text file, process to process", "`workspace merge-file -p` and `git merge-file -p`, taking turns")
    if not os.path.exists(os.path.join(bench.bed("text"), "ours")):
        bench.part("text", files=bench.files, rounds=1)
    taken = {OURS: [], GIT: []}
    for number in range(bench.files):
        order = (OURS, GIT) if number % 2 else (GIT, OURS)
        for tool in order:
            taken[tool].append(merged(bench, number, tool))
    for tool, runs in taken.items():
        row.add(tool, "one file", "ms", summary([one.wall for one in runs], 1e3))
        row.add(tool, "processor time", "ms", summary([one.cpu for one in runs], 1e3))
    ratio = row.median(OURS, "one file") / row.median(GIT, "one file")
    row.at_most("as a process: not slower than `git merge-file`", ratio, 1, "×")
    return row


def scattered(bench):
    return tree(bench, "tree", 1, "each in a directory of its own")


def neighbours(bench):
    return tree(bench, "neighbours", 10, "in runs of ten neighbours")


def tree(bench, name, length, where):
    row = Row(name, f"two sides with {bench.changes} changes each in {bench.tree_files:,} files, {where}",
              "ours through the library, to the id of the merged tree; `git merge-tree --write-tree`; as processes they take turns")

    def ours():
        return bench.part("tree", bed=name, files=bench.tree_files, rounds=1, changes=bench.changes, run=length,
                          tree=bench.data.tree(bench.tree_files))

    taken = ours()
    git = bench.git()
    sides = [git_side(bench.bed(name), git, side) for side in ("ours", "theirs")]
    store = os.path.join(bench.bed(name), "store")
    by_us = Command([bench.workspace, "--store", store, "merge-tree", *taken["snapshots"]])
    by_git = git.command("merge-tree", "--write-tree", *sides)
    runs = {OURS: [], GIT: []}
    samples = {}
    # Taking turns: a machine is not always equally fast.
    for number in range(bench.rounds):
        for tool, command in ((OURS, by_us), (GIT, by_git))[:: 1 if number % 2 else -1]:
            runs[tool].append(run(command))
        for what, times in ours()["samples"].items():
            samples.setdefault(what, []).extend(times)
    row.add(OURS, "two sides", "ms", summary(samples["again"]))
    row.add(OURS, "first after opening the store", "ms", summary(samples["first"]))
    row.add(OURS, "with a commit", "ms", summary(samples["with a commit"]))
    for tool, usage in runs.items():
        row.add(tool, "as a process", "ms", summary([one.wall for one in usage], 1e3))
    by_git = [one.wall for one in runs[GIT]]
    row.add(GIT, "two sides", "ms", summary(by_git, 1e3))
    row.at_most("≤ 20 ms", row.median(OURS, "two sides"), 20, "ms")
    row.at_most("first after opening: ≤ 20 ms", row.median(OURS, "first after opening the store"), 20, "ms")
    ratio = statistics.median(by_git) * 1e3 / row.median(OURS, "two sides")
    row.at_least("≥ 10 × faster than `git merge-tree --write-tree`", ratio, 10, "×")
    row.notes.append(f"{taken['merged']} files were merged by their lines, {taken['conflicts']} are in conflict.")
    return row


def git_side(bed, git, side):
    """A commit of git's with the changes of a side."""
    index = {"GIT_INDEX_FILE": os.path.join(bed, f"index-{side}")}
    directory = os.path.join(bed, side)

    def command(*words, capture=False):
        told = git.command(f"--work-tree={directory}", *words)
        told.env, told.cwd = index, directory
        return run(told, capture=capture).output

    base = command("rev-parse", "HEAD", capture=True)
    command("read-tree", base)
    written = [
        os.path.relpath(os.path.join(at, name), directory) for at, _, names in os.walk(directory) for name in names
    ]
    with open(directory + ".removed", encoding="utf-8") as file:
        removed = file.read().splitlines()
    command("update-index", "--add", *written)
    command("update-index", "--force-remove", *removed)
    tree_id = command("write-tree", capture=True)
    return command("commit-tree", "-p", base, "-m", side, tree_id, capture=True)


def json_documents(bench):
    row = Row("json", "JSON documents of 4 KB", "through the library, on one core; each side changes three fields or elements that the other does not")
    taken = bench.part("json", files=bench.files, rounds=bench.rounds)
    for what, samples in taken["samples"].items():
        row.add(OURS, f"written in {what}", "/s", summary([bench.files * 1e3 / sample for sample in samples]))
        row.at_least(f"in {what}: ≥ 10,000 merges/s", row.median(OURS, f"written in {what}"), 10_000, "/s")
    sizes = ", ".join(f"{size:,} bytes in {what}" for what, size in taken["bytes"].items())
    row.notes.append(f"Documents have {sizes}. In one line only values can be merged; in many, lines are merged and have to say the same.")
    return row


def large(bench):
    row = Row("large", "one text of 100 MB", "process to process, `-p`; the sides change some lines of it")
    taken = bench.part("large", size=bench.large)
    names = [os.path.join(bench.bed("large"), f"{side}.txt") for side in SIDES]
    for tool, program in ((OURS, bench.workspace), (GIT, GIT)):
        runs = [run(Command([program, "merge-file", "-p", "-q", *names], allowed=range(128))) for _ in range(3)]
        row.add(tool, "time", "ms", summary([one.wall for one in runs], 1e3))
        row.add(tool, "memory", "MiB", summary([one.max_rss for one in runs], 2**-20))
    row.notes.append(f"{taken['bytes'] / 2**20:.0f} MiB and {taken['lines']:,} lines in each of the three versions, which are held in memory.")
    return row
