"""Rows of the command on real directories, against the peers. All include process start and opening the store."""

import shutil

from data import append_line, regular_files
from row import Row
from timing import run, run_all, summary, sync_filesystem
from tools import PEERS, Copy, Git, GitPacked, GitParallel

OURS = "workspace"
COMMAND = "command, includes process start and opening the store"


def rotated(items, by):
    """Another tool goes first in each repetition."""
    by %= len(items)
    return items[by:] + items[:by]


class Samples:
    """Times by tool and measure, in the order they came."""

    def __init__(self):
        self.times = {}

    def add(self, tool, what, value):
        self.times.setdefault((tool, what), []).append(value)

    def into(self, row, unit="s", scale=1.0):
        for (tool, what), values in self.times.items():
            row.add(tool, what, unit, summary(values, scale))


def timed_with_sync(samples, tool, commands, path):
    """Times commands as they are, and with what they left unsynced written out."""
    sync_filesystem(path)
    wall = run_all(commands).wall
    samples.add(tool, "as it is", wall)
    samples.add(tool, "synced", wall + sync_filesystem(path))


def first_snapshot(bench):
    row = Row("first-snapshot", f"first snapshot of a tree of {bench.scale.files:,} files from disk", COMMAND)
    tree = bench.data.tree(bench.scale.files)
    tools = [bench.workspace()] + [peer(bench.data) for peer in PEERS]
    samples = Samples()
    for repetition in range(bench.scale.repetitions):
        for tool in rotated(tools, repetition):
            tool.reset()
            timed_with_sync(samples, tool.name, tool.snapshot(tree, f"v{repetition}"), bench.data.base)
            bench.progress(row, repetition, tool.name)
    samples.into(row)
    for peer, least in (("git", 2), ("restic", 3), ("borg", 3)):
        ratio = row.median(peer, "as it is") / row.median(OURS, "as it is")
        row.at_least(f"≥ {least} × as fast as {peer}", ratio, least, "×")
    row.notes.append("The bars compare the commands as they are: ours has synced when it ends, git has not.")
    return row


def next_snapshot(bench):
    row = Row("next-snapshot", f"next snapshot, 1 of {bench.scale.files:,} files changed", COMMAND)
    tree = bench.data.working_tree(bench.scale.files, "tree-next")
    peers = [peer for peer in PEERS if peer is not Copy]
    tools = [bench.workspace()] + [peer(bench.data) for peer in peers]
    for tool in tools:
        tool.reset()
        run_all(tool.snapshot(tree, "base"))
        bench.progress(row, "base", tool.name)
    samples = Samples()
    files = regular_files(tree, bench.scale.repetitions)
    for repetition, changed in enumerate(files):
        append_line(changed, f"change {repetition}")
        for tool in rotated(tools, repetition):
            timed_with_sync(samples, tool.name, tool.snapshot(tree, f"v{repetition}"), bench.data.base)
            bench.progress(row, repetition, tool.name)
    samples.into(row)
    ratio = row.median("git", "as it is") / row.median(OURS, "as it is")
    row.at_least("as fast as git, or faster", ratio, 1, "× as fast")
    return row


def full_checkout(bench):
    row = Row("checkout", f"full checkout of {bench.scale.files:,} files into an empty directory", COMMAND)
    tree = bench.data.tree(bench.scale.files)
    tools = checkout_tools(bench, tree, row)
    samples = Samples()
    for repetition in range(bench.scale.repetitions):
        for tool in rotated(tools, repetition):
            target = bench.data.directory("checkout-target")
            timed_with_sync(samples, tool.name, tool.checkout(target), bench.data.base)
            bench.progress(row, repetition, tool.name)
    samples.into(row)
    best = min(("git", "git, packed"), key=lambda name: row.median(name, "synced"))
    ratio = row.median(best, "synced") / row.median(OURS, "synced")
    row.at_least(f"synced alike, as fast as {best}, or faster", ratio, 1, "× as fast")
    row.notes.append("Synced: the filesystem is written out (`sync -f`) inside the measured time of each tool.")
    return row


def checkout_tools(bench, tree, row):
    tools = [bench.workspace()] + [peer(bench.data) for peer in PEERS]
    for tool in tools:
        tool.reset()
        run_all(tool.snapshot(tree, "base"))
        bench.progress(row, "base", tool.name)
    loose = next(tool for tool in tools if isinstance(tool, Git))
    for kind in (GitPacked, GitParallel):
        packed = kind(bench.data)
        packed.reset()
        shutil.copytree(loose.store, packed.store, dirs_exist_ok=True)
        # Packed without deleting the loose objects: see `Data`. Git looks into packs first.
        run(packed.command(tree, "repack", "-q", "-a"))
        tools.append(packed)
    return tools


def checkout_between(bench):
    count = min(10, bench.scale.many_files)
    row = Row(
        "checkout-between",
        f"checkout from one snapshot to another in place, {count} of {bench.scale.many_files:,} files differ",
        COMMAND,
    )
    tree = bench.data.working_tree(bench.scale.many_files, "tree-between")
    ours, git = bench.workspace(), Git(bench.data)
    versions = two_versions(bench, tree, (ours, git), count)
    targets = {}
    for tool in (ours, git):
        targets[tool] = bench.data.directory("target")
        run_all(tool.checkout(targets[tool]))
    samples = Samples()
    for repetition in range(bench.scale.fast_repetitions):
        sync_filesystem(bench.data.base)
        which = repetition % 2
        mine = ours.command("checkout", versions[ours][which], targets[ours])
        samples.add(ours.name, "as it is", run(mine).wall)
        environment = git.index_of(targets[git])
        theirs = git.command(targets[git], "checkout", "-q", versions[git][which], env=environment)
        samples.add(git.name, "as it is", run(theirs).wall)
        samples.add(ours.name, "diff of the two", run(ours.command("diff", *versions[ours])).wall)
        trees = git.command(targets[git], "diff-tree", "-r", *versions[git])
        samples.add(git.name, "diff of the two", run(trees).wall)
    samples.into(row, "ms", 1e3)
    row.at_most("≤ 10 ms", row.median(OURS, "as it is"), 10, "ms")
    return row


def two_versions(bench, tree, tools, count):
    """Snapshots of `tree` before and after `count` files change, by tool."""
    versions = {tool: [] for tool in tools}
    for tool in tools:
        tool.reset()
        run_all(tool.snapshot(tree, "first"))
        versions[tool].append(bench.latest(tool))
    for changed in regular_files(tree, count):
        append_line(changed, "changed")
    for tool in tools:
        run_all(tool.snapshot(tree, "second"))
        versions[tool].append(bench.latest(tool))
    return versions
