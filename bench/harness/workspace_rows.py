"""The rows about workspaces that are measured through the library, with their peers."""

import os
import shutil
import statistics

from data import append_line, regular_files
from row import Row
from sandbox_rows import NOBODY, OURS, add
from timing import Command, p95, run, summary, sync_filesystem

FLOOR = "bare overlay mount"
LIBRARY = "through the library, in one process"


def put(row, tool, what, milliseconds):
    add(row, tool, what, [sample / 1000 for sample in milliseconds])


def create(bench):
    row = Row("create", "workspace from a snapshot whose layers exist", f"{LIBRARY}; peers make a directory with the same files")
    taken = bench.part("create")
    peers = whole_copies(bench)
    put(row, OURS, "made", taken["create"])
    put(row, FLOOR, "made", taken["bare mount"])
    put(row, "mount -t overlay", "made", taken["mount program"])
    for name, samples in peers.items():
        row.add(name, "made", "ms", summary(samples))
    put(row, OURS, "removed", taken["cleanup"])
    put(row, FLOOR, "removed", taken["bare unmount"])
    create_bars(row, taken)
    ratio = statistics.median(peers["git worktree add"]) / statistics.median(taken["create"])
    row.at_least("≥ 100 × faster than `git worktree add`", ratio, 100, "×")
    row.notes.append(
        "The bare mount is the system calls alone (`fsopen`, `fsconfig`, `fsmount`, `move_mount`), of directories that were "
        "made before: nothing is noted, pinned, or found again after a crash."
    )
    return row


def create_bars(row, taken):
    ours, floor = statistics.median(taken["create"]), statistics.median(taken["bare mount"])
    row.at_most("p50 ≤ 3 × a bare overlay mount", ours / floor, 3, "×")
    row.at_most("p50 ≤ 5 ms", ours, 5, "ms")


def whole_copies(bench):
    """Milliseconds of each peer. Once each: what they write has to be removed again, which takes longer than writing it."""
    ways = {
        "cp -r": lambda path: run(Command(["cp", "-r", bench.tree, path])).wall,
        "cp --reflink=auto": lambda path: run(Command(["cp", "-r", "--reflink=auto", bench.tree, path])).wall,
    }
    samples = {"git worktree add": [bench.work_tree()[1] * 1000]}
    for name, copy in ways.items():
        path = bench.data.unused("copy")
        sync_filesystem(bench.data.base)
        samples[name] = [copy(path) * 1000]
        bench.progress(name)
    return samples


def ordinary(bench):
    row = Row("ordinary", "the same as an ordinary user", f"{LIBRARY}; mounts are made by a helper process in the holder's namespaces, bare ones too")
    taken = bench.part("create", user=NOBODY)
    put(row, OURS, "made", taken["create"])
    put(row, FLOOR, "made", taken["bare mount"])
    put(row, OURS, "removed", taken["cleanup"])
    put(row, FLOOR, "removed", taken["bare unmount"])
    create_bars(row, taken)
    return row


def lazy(bench):
    row = Row("lazy", "workspace from a snapshot never seen on this machine, to the first byte read", f"{LIBRARY}, over the lazy mount; nothing of the tree is written")
    taken = bench.part("lazy", rounds=max(3, bench.rounds // 3))
    for what in ("lazy mount not running", "lazy mount running"):
        put(row, OURS, what, taken[what])
        row.at_most(f"{what}: ≤ 50 ms", statistics.median(taken[what]), 50, "ms")
    row.notes.append("The store's files are in the page cache. Each lazy mount is new, and each workspace the first over it of this tree.")
    return row


def changes(bench):
    row = Row("changes", f"find 10 changed files among {bench.files:,}", f"{LIBRARY}; git status in a work tree of the same files, 10 of them changed alike")
    overlay = bench.part("change")
    copy = bench.part("copy", rounds=bench.few, git=changed_work_tree(bench))
    put(row, OURS, "overlay", overlay["changes"])
    put(row, OURS, "overlay, committed before", overlay["changes, committed before"])
    put(row, OURS, "copy", copy["changes"])
    put(row, "git status", "copy", copy["git status"])
    row.add(OURS, "copy, first time", "ms", summary(copy["changes, first time"]))
    row.at_most("overlay: ≤ 2 ms", statistics.median(overlay["changes"]), 2, "ms")
    ratio = statistics.median(copy["changes"]) / statistics.median(copy["git status"])
    row.at_most("copy: ≤ `git status`", ratio, 1, "×")
    return row


def changed_work_tree(bench):
    """A work tree of git's that has ten changed files, and was looked at before."""
    path = bench.work_tree()[0]
    # Files as young as the index are read again by every status: they get older, and the index is written anew.
    bench.settle()
    run(Command(["git", "-C", path, "update-index", "-q", "--really-refresh"], allowed=(0, 1)))
    for changed in regular_files(path, 10):
        append_line(changed, "changed")
    bench.settle()
    found = run(Command(["git", "-C", path, "status", "--porcelain"]), capture=True).output.splitlines()
    if len(found) != 10:
        raise AssertionError(f"git found {len(found)} changes")
    return path


def commit(bench):
    row = Row("commit", "commit of 10 changed files", f"{LIBRARY}, buffered, nobody writes meanwhile; over HTTP the sandbox is frozen for it")
    taken = bench.part("change")
    put(row, OURS, "overlay", taken["commit"])
    row.at_most("overlay, buffered: ≤ 5 ms", statistics.median(taken["commit"]), 5, "ms")
    served = bench.sandboxes().commits(bench.few)
    for what, samples in served.items():
        add(row, OURS, what, samples)
    return row


def many(bench):
    row = Row(
        "many",
        f"{bench.many:,} workspaces of one tree",
        "disk: blocks of layers and workspaces, and of one copy of the tree; memory: growth of Slab, Percpu, KernelStack and "
        "PageTables of the machine and of the process's resident memory",
    )
    taken = {name: values[0] for name, values in bench.part("many", many=bench.many).items()}
    disk = (taken["layers"] + taken["workspaces"]) / taken["one copy"]
    for what in ("one copy", "layers", "workspaces"):
        row.add("cp -r" if what == "one copy" else OURS, f"disk, {what}", "MB", summary([taken[what] / 1e6]))
    for what in ("kernel", "process", "available"):
        shown = "memory that is no longer available" if what == "available" else f"memory, {what}, each"
        row.add(OURS, f"{shown}, each" if what == "available" else shown, "KiB", summary([taken[what] / 1024 / bench.many]))
    row.at_most("disk: ≤ 1.02 × one copy", disk, 1.02, "×")
    row.at_most("memory: ≤ 300 KiB each", (taken["kernel"] + taken["process"]) / 1024 / bench.many, 300, "KiB")
    return row


def build(bench):
    row = Row("build", "`make` of a C project", "zstd's library, as its crate has it; alternating, new workspaces and a new lazy mount each time")
    project = make_project(bench)
    taken = bench.part("build", rounds=bench.builds, tree=project, bed="bed-build", jobs=os.cpu_count())
    for tool, key in (("plain directory", "plain"), ("workspace", "layers"), ("workspace, lazy mount", "lazy mount")):
        for when, shown in (("first", "first time"), ("again", "second time")):
            row.add(tool, shown, "s", summary(taken[f"{key}, {when}"], 1e-3))
    for tool, key, limit in (("workspace", "layers", 1.05), ("workspace, lazy mount", "lazy mount", 1.25)):
        ratios = [run / plain for when in ("first", "again") for run, plain in zip(taken[f"{key}, {when}"], taken[f"plain, {when}"])]
        row.add(tool, "of the plain directory in the same round", "×", summary(ratios))
        row.at_most(f"over the {key}: ≤ {limit} × the plain directory", statistics.median(ratios), limit, "×")
    row.notes.append("First time: nothing was read through this mount before; the plain directory was just copied. "
                     "The bars are on the median of the ratios of runs that came after each other in one round: the machine's speed "
                     "drifts by more than the bars allow, and a round is short against the drift.")
    return row


MAKEFILE = """CFLAGS = -O1 -Ilib -DZSTD_DISABLE_ASM -MMD
objects = $(patsubst %.c,%.o,$(wildcard lib/common/*.c lib/compress/*.c lib/decompress/*.c lib/dictBuilder/*.c))
libzstd.a: $(objects)
\t$(AR) rcs $@ $^
clean:
\trm -f libzstd.a $(objects) $(objects:.o=.d)
-include $(objects:.o=.d)
"""


def make_project(bench):
    """The sources of a package that this program itself is built with: they are there without a network."""
    path = os.path.join(bench.data.base, "project")
    if not os.path.exists(path):
        partial = path + ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(os.path.join(bench.package("zstd-sys"), "zstd/lib"), os.path.join(partial, "lib"))
        with open(os.path.join(partial, "Makefile"), "w", encoding="utf-8") as file:
            file.write(MAKEFILE)
        os.rename(partial, path)
    return path


def forks(bench):
    count = 10 if bench.quick else 100
    row = Row("forks", f"{count} forks of one sandbox, all answering a command", "REST, 8 connections; peer: `docker run -v` of the tree, 10 of them one after another, scaled")
    taken = bench.sandboxes().forks(count, bench.repetitions)
    for what, samples in taken.items():
        row.add(OURS, what, "s", summary(samples))
    docker = bench.docker_runs(10)
    row.add("docker run -v", "all answered", "s", summary([sum(docker) / len(docker) * count]))
    row.at_most("≤ 0.35 s in all", statistics.median(taken["all answered"]), 0.35, "s")
    return row


def restore(bench):
    row = Row("restore", "restore in place", "REST, a running sandbox in which nothing uses the workspace, between two snapshots")
    samples, frozen = bench.sandboxes().restores(bench.rounds)
    add(row, OURS, "restore", samples)
    add(row, OURS, "of that, stood still", frozen)
    row.at_most("p50 ≤ 20 ms", statistics.median(samples) * 1000, 20, "ms")
    return row


def search(bench):
    row = Row("search", "search loop: fork, edit a file, run `true`, commit, diff, delete", "REST; server, guests and client on one core, one step after the other")
    steps, parts = bench.sandboxes().search(bench.rounds * 2)
    for what, samples in parts.items():
        add(row, OURS, what, samples)
    row.add(OURS, "steps", "/s", summary([1 / statistics.mean(steps)]))
    row.add(OURS, "step, p95", "ms", summary([p95(steps)], 1000))
    row.at_least("≥ 100 steps/s", 1 / statistics.mean(steps), 100, "/s")
    return row
