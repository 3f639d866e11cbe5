"""The programs that are compared: how each makes a store, a snapshot and a checkout.

Every tool runs with the settings its users have, in a store of its own. What differs in kind (encryption,
compression, syncing) is written in `note` and ends up in the report.
"""

import os

from timing import Command, run


class Tool:
    """A program, its store and the commands on it."""

    name = ""
    package = ""
    program = ""
    note = ""

    def __init__(self, data):
        self.data = data
        self.base = self.store = None

    def reset(self):
        """An empty store at a new place; the old one stays where it is (see `Data`)."""
        self.base = self.data.directory(self.name.replace(" ", "-"))
        self.store = os.path.join(self.base, "store")
        for command in self.create():
            run(command)

    def version(self):
        return run(Command([self.program, "--version"]), capture=True).output.splitlines()[0]

    def create(self):
        return []

    def snapshot(self, tree, label):
        """Commands that put `tree` into the store."""
        raise NotImplementedError

    def checkout(self, target):
        """Commands that bring the latest snapshot back at `target`, an empty directory."""
        raise NotImplementedError

    def store_paths(self):
        return [self.store]


class Workspace(Tool):
    name = "workspace"
    note = "a snapshot is synced before the command ends (the default); zstd, BLAKE3"

    def __init__(self, data, program):
        super().__init__(data)
        self.program = program

    def command(self, *words, **options):
        return Command([self.program, "--store", self.store, *words], **options)

    def snapshot(self, tree, label):
        return [self.command("snapshot", tree, "-m", label, "--ref", "main")]

    def checkout(self, target):
        return [self.command("checkout", "main", target)]


class Git(Tool):
    name = "git"
    package = "git"
    program = "git"
    note = "default settings (loose objects are not synced), gc.auto=0 and no background maintenance; zlib, SHA-1"
    settings = ()

    def command(self, tree, *words, **options):
        configuration = [word for setting in self.settings for word in ("-c", setting)]
        return Command(
            [self.program, *configuration, f"--git-dir={self.store}", f"--work-tree={tree}", *words],
            cwd=tree,
            **options,
        )

    def create(self):
        configure = [self.program, f"--git-dir={self.store}", "config"]
        return [
            Command([self.program, "init", "-q", "--bare", self.store]),
            Command([*configure, "core.bare", "false"]),
            Command([*configure, "gc.auto", "0"]),
            Command([*configure, "maintenance.auto", "false"]),
            Command([*configure, "user.name", "bench"]),
            Command([*configure, "user.email", "bench@localhost"]),
        ]

    def snapshot(self, tree, label):
        return [self.command(tree, "add", "-A"), self.command(tree, "commit", "-q", "-m", label)]

    def checkout(self, target):
        return [self.command(target, "checkout", "-q", "-f", "HEAD", env=self.index_of(target))]

    def index_of(self, target):
        """Each directory has an index of its own, as separate work trees have."""
        return {"GIT_INDEX_FILE": os.path.join(self.base, "index-" + os.path.basename(target))}


class GitPacked(Git):
    name = "git, packed"
    note = "the same after `git gc`, as a clone would have it"


class GitParallel(GitPacked):
    name = "git, packed, checkout.workers=0"
    note = "the same with one checkout worker per core, which is not the default"
    settings = ("checkout.workers=0",)


class Restic(Tool):
    name = "restic"
    package = "restic"
    program = "restic"
    note = "encrypts always (AES-256); zstd; syncs its files; SHA-256"

    def version(self):
        return run(Command([self.program, "version"]), capture=True).output.splitlines()[0]

    def command(self, *words, **options):
        environment = {
            "RESTIC_REPOSITORY": self.store,
            "RESTIC_PASSWORD": "bench",
            "RESTIC_CACHE_DIR": os.path.join(self.base, "cache"),
        }
        return Command([self.program, *words], env=environment, **options)

    def create(self):
        return [self.command("init", "-q")]

    def snapshot(self, tree, label):
        return [self.command("backup", "-q", "--tag", label, ".", cwd=tree)]

    def checkout(self, target):
        return [self.command("restore", "-q", "latest", "--target", target)]


class Borg(Tool):
    name = "borg"
    package = "borgbackup"
    program = "borg"
    note = "without encryption; lz4 (its default); SHA-256"

    def command(self, *words, **options):
        environment = {
            "BORG_REPO": self.store,
            "BORG_BASE_DIR": os.path.join(self.base, "home"),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
        }
        return Command([self.program, *words], env=environment, **options)

    def create(self):
        return [self.command("init", "--encryption", "none")]

    def snapshot(self, tree, label):
        self.latest = label
        return [self.command("create", f"::{label}", ".", cwd=tree)]

    def checkout(self, target):
        return [self.command("extract", f"::{self.latest}", cwd=target)]


class Casync(Tool):
    name = "casync"
    package = "casync"
    program = "casync"
    note = "zstd, SHA-512/256; a file per chunk; does not sync"

    def snapshot(self, tree, label):
        self.latest = os.path.join(self.base, "store", f"{label}.caidx")
        os.makedirs(self.store, exist_ok=True)
        chunks = os.path.join(self.store, "default.castr")
        return [Command([self.program, "make", f"--store={chunks}", self.latest, tree])]

    def checkout(self, target):
        chunks = os.path.join(self.store, "default.castr")
        return [Command([self.program, "extract", f"--store={chunks}", self.latest, target])]


class Ostree(Tool):
    name = "ostree"
    package = "ostree"
    program = "ostree"
    note = "mode bare-user: whole files, not compressed; syncs the filesystem; SHA-256"

    def version(self):
        text = run(Command([self.program, "--version"]), capture=True).output
        line = next(line for line in text.splitlines() if "Version" in line)
        return "ostree " + line.split(":")[1].strip(" '")

    def create(self):
        return [Command([self.program, "init", f"--repo={self.store}", "--mode=bare-user"])]

    def snapshot(self, tree, label):
        words = ["commit", f"--repo={self.store}", "-b", "main", "-s", label, f"--tree=dir={tree}"]
        return [Command([self.program, *words])]

    def checkout(self, target):
        # It makes the directory itself; --force-copy, because linked files are not a checkout one may edit.
        words = ["checkout", f"--repo={self.store}", "-U", "--force-copy", "--union", "main", target]
        return [Command([self.program, *words])]


class Copy(Tool):
    name = "cp -a"
    package = "coreutils"
    program = "cp"
    note = "keeps one version, shares nothing"

    def snapshot(self, tree, label):
        return [Command(["cp", "-a", tree, self.store])]

    def checkout(self, target):
        return [Command(["cp", "-a", f"{self.store}/.", target])]


PEERS = [Git, Restic, Borg, Casync, Ostree, Copy]
