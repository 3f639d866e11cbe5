"""Rows about disk and memory."""

from data import remove
from row import Row
from rows_command import COMMAND, OURS, Samples
from timing import disk_usage, run, run_all, summary
from tools import Borg, Git, Restic

MIB = 1 << 20


def history_size(bench):
    files, versions = bench.scale.history_files, bench.scale.versions
    row = Row("history", f"disk used by {versions} versions of a tree of {files:,} files", COMMAND)
    tree = bench.data.working_tree(files, "tree-history")
    peers = [Git, Restic, Borg]
    tools = [bench.workspace()] + [peer(bench.data) for peer in peers]
    for tool in tools:
        tool.reset()
    samples = Samples()
    for version in range(versions):
        if version:
            bench.data.advance(tree, files, version)
        for tool in tools:
            wall = run_all(tool.snapshot(tree, f"v{version}")).wall
            if version:
                samples.add(tool.name, "time per version", wall)
        bench.progress(row, version, "all")
    for tool in tools:
        record_size(row, tool.name, tool.store_paths())
    git = next(tool for tool in tools if isinstance(tool, Git))
    run(git.command(tree, "gc", "-q", "--prune=now"))
    record_size(row, "git, after gc", git.store_paths())
    record_size(row, "the last version itself", [tree])
    samples.into(row)
    ratio = row.median(OURS, "disk") / row.median("restic", "disk")
    row.at_most("≤ restic's", ratio, 1, "× restic's")
    row.notes.append("casync and ostree are left out: they read every file again for each version, which would take hours.")
    return row


def record_size(row, name, paths):
    blocks, content = disk_usage(paths)
    row.add(name, "disk", "MiB", summary([blocks / MIB]))
    row.add(name, "bytes in files", "MiB", summary([content / MIB]))


def memory_file(bench):
    size = bench.scale.big_file
    row = Row("memory-file", f"peak resident memory, snapshot of one file of {size / 2**30:g} GiB", COMMAND)
    directory = bench.data.big_file()
    return memory(bench, row, directory, 200)


def memory_tree(bench):
    files = bench.scale.million_files
    row = Row("memory-tree", f"peak resident memory, snapshot of a tree of {files:,} files", COMMAND)
    tree = bench.data.tree(files, median=512)
    row = memory(bench, row, tree, 1024)
    row.notes.append("The median file is 512 bytes, so that the tree fits on small disks.")
    return row


def memory(bench, row, directory, limit):
    tool = bench.workspace()
    samples = Samples()
    again = Samples()
    for repetition in range(bench.scale.memory_repetitions):
        tool.reset()
        usage = run_all(tool.snapshot(directory, "first"))
        samples.add(OURS, "peak memory", usage.max_rss / MIB)
        again.add(OURS, "time", usage.wall)
        usage = run_all(tool.snapshot(directory, "second"))
        samples.add(OURS, "peak memory, next snapshot", usage.max_rss / MIB)
        again.add(OURS, "time, next snapshot", usage.wall)
        # Few files, many gigabytes: deleted at once.
        remove(tool.base)
        bench.progress(row, repetition, OURS)
    samples.into(row, "MiB")
    again.into(row)
    row.at_most(f"≤ {limit} MiB", row.median(OURS, "peak memory"), limit, "MiB")
    row.notes.append("Resident memory counts pages of files that are mapped, such as the index.")
    return row
