"""A project on a server of ours, and many clients that work with it at once."""

import contextlib
import datetime
import os
import queue
import subprocess
import tarfile
import threading
import time
import urllib.parse

from concurrency import in_threads
from data import regular_files

CONNECTIONS = 16
# Seconds in which all completions must land.
LAND_TIMEOUT = 60
# Seconds between two requests for the sequence of the head.
POLL_INTERVAL = 0.005


class Project:
    """A project of its own, with the files of a directory, and more files by path and content."""

    numbers = iter(range(1_000_000))

    def __init__(self, server, data, tree, extra=None, programs=()):
        self.server = server
        self.name = f"bench-{os.getpid()}-{next(self.numbers)}"
        self.path = f"/api/v1/projects/{self.name}"
        self.client = server.client()
        self.id = self.client.ask("POST", "/api/v1/projects", {"name": self.name})["id"]
        archive = data.unused("import.tar")
        try:
            subprocess.run(["tar", "-C", tree, "-cf", archive, "."], check=True)
            add_files(data, archive, extra or {}, programs)
            self.send("import", archive)
        finally:
            os.remove(archive)

    def send(self, what, path):
        headers = {"Authorization": f"Bearer {self.client.key}", "Content-Type": "application/octet-stream"}
        headers["Content-Length"] = str(os.path.getsize(path))
        with open(path, "rb") as body:
            self.client.connection.request("POST", f"{self.path}/{what}", body, headers)
            answer = self.client.connection.getresponse()
            text = answer.read()
        assert answer.status == 200, text[:500]

    def ask(self, method, path="", body=None, more=None):
        return self.client.ask(method, self.path + path, body, more)

    def sequence(self):
        return self.ask("GET")["sequence"]

    def set_policy(self, policy):
        self.ask("PUT", "/policy", policy)

    def landed_at(self, sequence):
        """Time in nanoseconds since 1970 that the history has for a change of the head, in whole milliseconds."""
        found = next(item for item in self.ask("GET", "/operations?limit=10")["items"] if item["sequence"] == sequence)
        at = datetime.datetime.fromisoformat(found["time"].replace("Z", "+00:00"))
        return int(at.timestamp() * 1000) * 1_000_000

    def create(self, client=None, **more):
        return (client or self.client).create(project=self.name, **more)

    def sandboxes(self, count, **more):
        """Sandboxes of as many agents."""
        made = [None] * count

        def make(client, index):
            made[index] = self.create(client, agent=f"agent-{index}", **more)

        everywhere(self.server, range(count), make)
        return made

    def edit(self, sandboxes, command):
        """Runs a command of its own in each sandbox. Returns what they printed."""
        printed = [None] * len(sandboxes)

        def one(client, index):
            ran = client.run(sandboxes[index], command(index))
            assert ran["exitCode"] == 0, ran
            printed[index] = ran["stdout"]

        everywhere(self.server, range(len(sandboxes)), one)
        return printed

    def complete(self, sandboxes):
        """Completes all at once. Returns the seconds until all requests were answered, until the history has the last, and
        until the client knows that all landed."""
        first, ids = self.sequence(), [None] * len(sandboxes)

        def one(client, index):
            ids[index] = client.ask("POST", f"/api/v1/sandboxes/{sandboxes[index]}/complete", {})["id"]

        began, clock = time.perf_counter(), time.time_ns()
        answered = everywhere(self.server, range(len(sandboxes)), one)
        last = first + len(sandboxes)
        while self.sequence() < last:
            assert time.perf_counter() - began < LAND_TIMEOUT, (self.sequence(), last)
            time.sleep(POLL_INTERVAL)
        landed = time.perf_counter() - began
        # The client would need longer for as many requests than the server for the merges.
        for completion in ids:
            found = self.ask("GET", f"/completions/{completion}?wait=60")
            assert found["state"] == "landed", found
        assert self.sequence() == last, (self.sequence(), last)
        return answered, max(0, self.landed_at(last) - clock) / 1e9, landed

    def complete_one(self, sandbox):
        """Completes one sandbox. Returns its completion, which landed."""
        done = self.client.ask("POST", f"/api/v1/sandboxes/{sandbox}/complete", {"wait": 60})
        assert done["state"] == "landed", done
        return done

    def remove(self, sandboxes):
        for start in range(0, len(sandboxes), 50):
            ids = sandboxes[start : start + 50]
            self.client.ask("POST", "/api/v1/sandboxes/batch-delete", {"ids": ids, "complete": False})

    def delete(self):
        """Removes the project, so that a catalog that others have is as it was."""
        self.ask("DELETE")

    def file(self, path):
        return self.client.get(f"{self.path}/files/{urllib.parse.quote(path)}").decode()

    def files(self, data):
        """Content of every file and symlink of the head, by path."""
        place = data.unused("head.tar")
        try:
            with open(place, "wb") as file:
                file.write(self.client.get(f"{self.path}/archive"))
            with tarfile.open(place) as archive:
                return {
                    os.path.normpath(item.name): archive.extractfile(item).read() if item.isfile() else os.fsencode(item.linkname)
                    for item in archive
                    if not item.isdir()
                }
        finally:
            os.remove(place)


@contextlib.contextmanager
def served_project(bench, tree, extra=None, programs=()):
    """A project on a new server, which is stopped in the end."""
    with bench.server() as server:
        yield Project(server, bench.data, tree, extra, programs)


def add_files(data, archive, extra, programs):
    """Adds files to an archive: text by path, and programs, which keep their names."""
    place = data.directory("extra")
    for path, content in extra.items():
        os.makedirs(os.path.dirname(os.path.join(place, path)), exist_ok=True)
        with open(os.path.join(place, path), "w", encoding="utf-8") as file:
            file.write(content)
    for program in programs:
        subprocess.run(["cp", program, place], check=True)
    names = "\n".join([*extra, *(os.path.basename(program) for program in programs)])
    if names:
        subprocess.run(["tar", "-C", place, "-rf", archive, "-T", "-"], input=names.encode(), check=True)


def tree_files(tree):
    """Content of every file and symlink of a directory, by path."""
    found = {}
    for directory, directories, names in os.walk(tree):
        links = [name for name in directories if os.path.islink(os.path.join(directory, name))]
        for path in (os.path.join(directory, name) for name in (*names, *links)):
            if os.path.islink(path):
                content = os.fsencode(os.readlink(path))
            else:
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, tree)] = content
    return found


def some_paths(tree, count, seed=1):
    """Paths of some regular files of a tree, from its root."""
    return [os.path.relpath(path, tree) for path in regular_files(tree, count, seed)]


def everywhere(server, items, work):
    """Does some work for all items over several connections. Returns the seconds that it took."""
    waiting, failed = queue.SimpleQueue(), threading.Event()
    for item in items:
        waiting.put(item)

    def some(_):
        try:
            client = server.client()
            while not failed.is_set():
                work(client, waiting.get_nowait())
        except queue.Empty:
            return
        except Exception:
            failed.set()
            raise

    began = time.perf_counter()
    in_threads(CONNECTIONS, some)
    return time.perf_counter() - began
