"""The rows about many readers of one project: read-only workspaces, followers of the head, followers of the events."""

import contextlib
import os
import selectors
import socket
import statistics
import subprocess
import time

from project_client import everywhere, served_project, some_paths
from row import Row
from sandbox_client import start_response
from sandbox_rows import OURS
from timing import disk_usage, summary, sync_filesystem

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "follower.c")
# How often the followers look, in milliseconds: the processor time of 1,000 of them is what limits it.
INTERVAL = 50
BUSY_INTERVAL = 1
BUSY_FOLLOWERS = 20
BUSY_HEADS = 20
STREAMS_PER_OWNER = 16
# Seconds in which all followers must have seen a head.
SEEN_WITHIN = 3
FILES = {"turn.txt": "0\n", "pair/a": "0\n", "pair/b": "0\n"}


def follower(bench):
    """The program that reads in the sandboxes."""
    program = os.path.join(bench.data.directory("program"), "follower")
    subprocess.run(["cc", "-O2", "-o", program, SOURCE], check=True)
    return program


def readers(bench):
    """Many read-only workspaces: what one costs, and what all occupy on disk."""
    tree = bench.data.tree(bench.large_files)
    one_copy, content = disk_usage([tree])
    row = Row(
        "readers",
        f"{bench.followers:,} read-only workspaces of a project of {content / 1e6:,.0f} MB",
        f"over HTTP, one after another, in sandboxes of an agent that may only read; {bench.large_files:,} files",
    )
    path = some_paths(tree, 1)[0]
    with served_project(bench, tree) as project:
        project.set_policy({"rules": [{"path": "**", "access": "R"}]})
        sync_filesystem(bench.data.base)
        before = occupied(project.server)
        began = time.perf_counter()
        made = [project.create(agent="reader", materialize="full")]
        first = (time.perf_counter() - began) * 1000
        samples, without = [], []
        for number in range(bench.followers - 1):
            samples.append(timed(lambda: made.append(project.create(agent="reader"))))
            if number % 20 == 0:
                without.append(timed(lambda: made.append(project.client.create())))
        sync_filesystem(bench.data.base)
        after = occupied(project.server)
        with open(os.path.join(tree, path), "rb") as file:
            size = len(file.read())
        for sandbox in made[:: max(1, len(made) // 20)]:
            ran = project.client.run(sandbox, f"[ ! -e '{path}' ] || {{ wc -c < '{path}'; touch new || echo read-only; }}")
            assert ran["stdout"].split() in ([str(size), "read-only"], []), ran
        project.remove(made)
    row.add(OURS, "the first, which writes the files", "ms", summary([first]))
    row.add(OURS, "one more, with its sandbox", "ms", summary(samples))
    row.add(OURS, "a sandbox without files", "ms", summary(without))
    grown = {name: after[name] - before.get(name, 0) for name in after}
    total, files = sum(grown.values()), sum(grown[name] for name in ("workspaces", "workspaces-layers"))
    row.add(OURS, "disk of all workspaces", "MB", summary([files / 1e6]))
    row.add(OURS, "the same with sandboxes and catalog", "MB", summary([total / 1e6]))
    row.add("cp -a", "one copy", "MB", summary([one_copy / 1e6]))
    row.at_most("disk ≤ 1.05 × one copy", files / one_copy, 1.05, "×")
    row.at_most("disk ≤ 1.05 × one copy, with all that the data directory has of their sandboxes", total / one_copy, 1.05, "×")
    whole = statistics.median(samples)
    row.at_most("creation p50 ≤ 5 ms, without the sandbox", max(0, whole - statistics.median(without)), 5, "ms")
    row.at_most("creation p50 ≤ 5 ms, with the sandbox", whole, 5, "ms")
    largest = sorted(grown.items(), key=lambda part: -part[1])[:4]
    parts = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in largest)
    row.notes.append(
        f"What grew in the data directory: {parts}. The store had the project before, with {before['store'] / 1e6:,.0f} MB. "
        f"Among the workspaces are {len(without)} sandboxes without files; the time without the sandbox is the difference of "
        "the two medians."
    )
    return row


def occupied(server):
    """Bytes on disk of each part of a data directory. What is mounted there is not a part of it."""
    names = os.listdir(server.home)
    du = ["du", "-x", "-s", "--block-size=1", *names]
    lines = subprocess.run(du, cwd=server.home, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: int(size) for size, name in (line.split("\t") for line in lines)}


def timed(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def followers(bench):
    """Readers that follow the head: the time until all see a change of one file, and whether they ever see anything else."""
    row = Row(
        "followers",
        f"the head moves by one file: all {bench.followers:,} followers see it",
        f"over HTTP; a project of {bench.files:,} files; in each sandbox a program reads every {INTERVAL} ms",
    )
    with served_project(bench, bench.tree(), FILES, [follower(bench)]) as project:
        made = project.sandboxes(bench.followers, follow="head")
        extra = []
        samples = [timed(lambda: extra.append(project.create(agent="more", follow="head"))) for _ in range(bench.rounds * 5)]
        project.remove(extra)
        pids = start_followers(project, made, INTERVAL)
        writer = project.create(agent="writer")
        landed = [turn(project, writer, number, "echo {0} > turn.txt") for number in range(1, bench.heads + 1)]
        busy = made[:BUSY_FOLLOWERS]
        busy_pids = start_followers(project, busy, BUSY_INTERVAL)
        both = "echo {0} > pair/a; echo {0} > pair/b; echo {0} > turn.txt"
        for number in range(bench.heads + 1, bench.heads + 1 + BUSY_HEADS):
            turn(project, writer, number, both, pause=0)
        time.sleep(SEEN_WITHIN)
        reports = read_reports(project, made, pids, INTERVAL)
        busy_reports = read_reports(project, busy, busy_pids, BUSY_INTERVAL)
        last = bench.heads + BUSY_HEADS
        project.remove([writer, *made])
    everyone = reports + busy_reports
    seen = [max(report.first_at(number) for report in reports) for number in range(1, bench.heads + 1)]
    spent = [max(0, at - begin) / 1e6 for at, begin in zip(seen, landed, strict=True)]
    typical = [
        statistics.median(max(0, report.first_at(number) - begin) / 1e6 for report in reports)
        for number, begin in enumerate(landed, 1)
    ]
    assert all(report.last == last for report in everyone), "a follower did not see the last head"
    row.add(OURS, "one more follower created", "ms", summary(samples))
    row.add(OURS, "all see the new head", "ms", summary(spent))
    row.add(OURS, "half of them see it", "ms", summary(typical))
    row.at_most(f"≤ 250 ms until all {bench.followers:,} see it", statistics.median(spent), 250, "ms")
    row.at_most("no ENOENT in any reader: 0 errors", sum(report.missing for report in everyone), 0, "errors")
    row.at_most("no mixed tree in any reader: 0 differ", sum(report.mixed for report in everyone), 0, "differ")
    row.at_most("no process ended: 0 of them", sum(report.ended for report in everyone), 0, "ended")
    row.notes.append(
        "The time begins with that of the change in the project's history, and ends when the program in the last sandbox has "
        f"read the new file. {bench.heads} heads, one every {SEEN_WITHIN} s; then {BUSY_HEADS} heads as fast as they land, of "
        f"three files each, while {len(busy)} more programs read every {BUSY_INTERVAL} ms. Each program compares two files "
        "below one open directory, which always change together."
    )
    return row


def start_followers(project, sandboxes, interval):
    """Starts the program in each sandbox, where it stays. Returns the PIDs there, all of which have read."""
    program, notes = f"/tmp/follower-{interval}", f"/tmp/seen-{interval}"
    command = (
        f"cp /workspace/follower {program}; cd /; {program} {interval} {notes} </dev/null >/dev/null 2>&1 & pid=$!; "
        f"until [ -s {notes} ]; do sleep 0.05; done; echo $pid"
    )
    return [int(printed) for printed in project.edit(sandboxes, lambda _: command)]


def turn(project, writer, number, command, pause=SEEN_WITHIN):
    """Moves the head, then waits. Returns the time at which the head moved."""
    assert project.client.run(writer, command.format(number))["exitCode"] == 0
    landed = project.landed_at(project.complete_one(writer)["sequence"])
    time.sleep(pause)
    return landed


class Report:
    """What a follower noted."""

    def __init__(self, text, ended):
        words = [line.split() for line in text.splitlines()]
        self.seen = [(int(line[1]), int(line[2])) for line in words if line[0] == "seen"]
        self.missing = sum(line[0] == "missing" for line in words)
        self.mixed = sum(line[0] == "mixed" for line in words)
        self.ended = ended
        self.last = self.seen[-1][0]

    def first_at(self, number):
        """Nanoseconds since 1970 when it saw this head or a later one."""
        found = [at for seen, at in self.seen if seen >= number]
        assert found, f"a follower never saw head {number}"
        return found[0]


def read_reports(project, sandboxes, pids, interval):
    def command(index):
        return f"cat /tmp/seen-{interval}; kill -0 {pids[index]} 2>/dev/null || echo ended"

    texts = project.edit(sandboxes, command)
    return [Report(text.removesuffix("ended\n"), text.endswith("ended\n")) for text in texts]


def events(bench):
    """Agents that follow the events of a project, each with a key and a stream of its own."""
    row = Row(
        "events",
        f"{bench.followers:,} streams of the events of a project",
        f"over HTTP, server-sent events; an owner may have {STREAMS_PER_OWNER} streams, so many owners follow the project",
    )
    with served_project(bench, bench.data.directory("events"), FILES) as project:
        opened, keys = [None] * bench.followers, []
        for number in range(-(-bench.followers // STREAMS_PER_OWNER)):
            body = {"name": f"follower-{number}", "owner": f"follower-{number}", "role": "admin"}
            keys.append(project.client.ask("POST", "/api/v1/keys", body)["key"])

        def open_stream(_, index):
            path = f"/api/v1/projects/{project.id}/events"
            opened[index] = Stream(project.server.port, path, keys[index // STREAMS_PER_OWNER])

        try:
            everywhere(project.server, range(bench.followers), open_stream)
            writer = project.create(agent="writer")
            # Events from before.
            time.sleep(1)
            for stream in opened:
                stream.skip()
            spent, half = [], []
            for number in range(1, bench.heads + 1):
                landed = turn(project, writer, number, "echo {0} > turn.txt", pause=0)
                received = sorted(wait_for_events(opened, number))
                spent.append(max(0, received[-1] - landed) / 1e6)
                half.append(max(0, received[len(received) // 2] - landed) / 1e6)
        finally:
            for stream in filter(None, opened):
                stream.close()
        project.remove([writer])
    row.add(OURS, "all have the event", "ms", summary(spent))
    row.add(OURS, "half of them have it", "ms", summary(half))
    row.shown(f"all {bench.followers:,} have the event of a new head", statistics.median(spent), "ms")
    row.notes.append(
        "The time begins with that of the change in the project's history, and ends when the client, one thread for all "
        "streams, has read the event `project.advanced` from the last of them. The keys are those of administrators, who may "
        "follow projects of other owners."
    )
    return row


class Stream:
    """A stream of events, of which only the newest heads are counted."""

    def __init__(self, port, path, key):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        headers = (
            "Host: localhost\r\nAccept: text/event-stream\r\n"
            f"Last-Event-ID: 0\r\nAuthorization: Bearer {key}\r\n"
        )
        self.buffer = start_response(self.socket, f"{path}?type=project.advanced", headers, 200)
        self.socket.setblocking(False)
        self.heads = 0

    def skip(self):
        """Reads what there is; the next head is counted as the first."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.read()
        self.heads = 0

    def read(self):
        piece = self.socket.recv(65536)
        assert piece, "the stream ended"
        self.buffer += piece
        *lines, self.buffer = self.buffer.split(b"\n")
        self.heads += sum(line.startswith(b"event:") and line.endswith(b"project.advanced") for line in lines)

    def close(self):
        self.socket.close()


def wait_for_events(streams, number):
    """Times at which each stream had the event of a head, in nanoseconds since 1970."""
    received, until = [], time.monotonic() + 60
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            if stream.heads >= number:
                received.append(time.time_ns())
            else:
                selector.register(stream.socket, selectors.EVENT_READ, stream)
        while len(received) < len(streams):
            assert time.monotonic() < until, f"{len(streams) - len(received)} streams have no event"
            for key, _ in selector.select(1):
                key.data.read()
                if key.data.heads >= number:
                    received.append(time.time_ns())
                    selector.unregister(key.fileobj)
    return received
