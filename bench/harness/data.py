"""The data of a run, made once by the seeded generator and kept for the next run."""

import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass

from timing import Command, run, sync_filesystem


@dataclass(frozen=True)
class Scale:
    """How much data a run uses and how often it repeats."""

    files: int
    many_files: int
    million_files: int
    big_file: int
    versions: int
    history_files: int
    repetitions: int
    fast_repetitions: int
    memory_repetitions: int


FULL = Scale(60_000, 100_000, 1_000_000, 10 << 30, 150, 60_000, 5, 15, 5)
QUICK = Scale(2_000, 5_000, 20_000, 256 << 20, 6, 2_000, 2, 3, 2)


class Data:
    """Generated trees, kept for the next run, and scratch space, emptied between rows.

    Rows delete no trees. ext4 avoids inodes freed in the last minutes by looking at each of them
    (`recently_deleted`), so that whoever creates files after a large deletion pays for it, ten times over.
    """

    RESERVE = 25 << 30
    SETTLE_SECONDS = 370

    def __init__(self, base, scale, generator):
        self.base = base
        self.scratch = os.path.join(base, "scratch")
        self.scale = scale
        self.generator = generator
        self.names = 0
        os.makedirs(self.scratch, exist_ok=True)

    def unused(self, name):
        """A path in the scratch space where nothing is."""
        self.names += 1
        return os.path.join(self.scratch, f"{self.names}-{name}")

    def directory(self, name):
        """A new empty directory in the scratch space."""
        path = self.unused(name)
        os.makedirs(path)
        return path

    def tree(self, files, median=4096):
        """A generated tree that no row may change."""
        path = os.path.join(self.base, f"tree-{files}-{median}")
        return self._make(path, ["tree", "--files", files, "--median", median])

    def working_tree(self, files, name):
        """A generated tree of a row's own."""
        return self._make(self.unused(name), ["tree", "--files", files])

    def make_room(self):
        """Before a row: empties the scratch space when the disk is filling up, and lets the filesystem forget it."""
        if shutil.disk_usage(self.base).free < self.RESERVE:
            self.clean()
        self._settle()

    def clean(self):
        """Deletes what rows left behind and notes when."""
        shutil.rmtree(self.scratch)
        os.makedirs(self.scratch)
        with open(self._stamp(), "w", encoding="utf-8") as stamp:
            stamp.write(str(time.time()))

    def _stamp(self):
        return os.path.join(self.base, "cleaned-at")

    def _settle(self):
        if self.scale is QUICK or not os.path.exists(self._stamp()):
            return
        with open(self._stamp(), encoding="utf-8") as stamp:
            left = float(stamp.read()) + self.SETTLE_SECONDS - time.time()
        if left > 0:
            print(f"  waiting {left:.0f} s after a large deletion", file=sys.stderr)
            time.sleep(left)

    def big_file(self):
        """A directory holding one large file."""
        directory = os.path.join(self.base, "big-file")
        os.makedirs(directory, exist_ok=True)
        self._make(os.path.join(directory, "image.bin"), ["file", "--size", self.scale.big_file])
        return directory

    def advance(self, tree, files, version):
        """Takes a tree from the version before to `version`."""
        run(Command([self.generator, "history", tree, "--files", files, "--version", version]))

    def _make(self, path, words):
        if not os.path.exists(path):
            print(f"  making {os.path.basename(path)}", file=sys.stderr)
            # Under another name until it is whole: an interrupted run leaves nothing that looks finished.
            partial = path + ".partial"
            remove(partial)
            run(Command([self.generator, words[0], partial, *words[1:]]))
            os.rename(partial, path)
            sync_filesystem(self.base)
        return path


def open_data(quick, binaries):
    """Returns the data of quick or of full runs, made by the generator that is one of these programs."""
    return Data(run_directory(quick), QUICK if quick else FULL, os.path.join(binaries, "workspace-bench"))


def run_directory(quick):
    """Returns the directory of quick or of full runs, which have data of their own."""
    return os.path.join(bench_directory(), "quick" if quick else "full")


def bench_directory():
    default = os.path.join(tempfile.gettempdir(), "workspace-bench")
    return os.environ.get("WORKSPACE_BENCH_DIR", default)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def regular_files(tree, count, seed=1):
    """Some regular files of a tree, the same for the same tree and seed."""
    files = []
    for directory, directories, names in os.walk(tree):
        directories.sort()
        for name in sorted(names):
            path = os.path.join(directory, name)
            if name.endswith((".rs", ".c", ".py", ".ts")) and not os.path.islink(path):
                files.append(path)
    return random.Random(seed).sample(files, count)


def append_line(path, text):
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"// {text}\n")
