"""The rows about files of sandboxes: small ones, large ones, directories."""

import io
import os
import statistics
import subprocess
import tarfile
import tempfile
import time

from row import Row
from sandbox_rows import OURS, add, load
from timing import summary

SMALL = 1024
FILES = 10_000


def path_of(sandbox, name):
    return f"/api/v1/sandboxes/{sandbox}/files/{name}"


def small(bench):
    row = Row("files", "write and read a file of 1 KiB", "REST over a kept connection: PUT and GET; then 16 connections at once, half of the requests of each kind")
    content, both, writes, reads, commands = b"x" * SMALL, [], [], [], []
    with bench.server() as server:
        client = server.client()
        sandbox = client.create()
        for _ in range(20):
            client.run(sandbox, "true")
            client.put(path_of(sandbox, "workspace/file"), content)
        for _ in range(bench.rounds * 4):
            began = time.perf_counter()
            client.run(sandbox, "true")
            commands.append(time.perf_counter() - began)
            began = time.perf_counter()
            client.put(path_of(sandbox, "workspace/file"), content)
            written = time.perf_counter()
            assert client.get(path_of(sandbox, "workspace/file")) == content
            ended = time.perf_counter()
            writes.append(written - began)
            reads.append(ended - written)
            both.append(ended - began)
        name = path_of(sandbox, "workspace/file-{n}")
        requests = [{"method": "PUT", "path": name, "body": content.decode()}, {"method": "GET", "path": name}]
        rates = [load(bench, server, requests, rounds=bench.rounds * 2)["requests_per_second"] for _ in range(3)]
    add(row, OURS, "write and read", both)
    add(row, OURS, "write", writes)
    add(row, OURS, "read", reads)
    add(row, OURS, "`true`", commands)
    row.add(OURS, "16 connections", "operations/s", summary(rates))
    row.at_most("p50 ≤ 2 × `true`", statistics.median(both) / statistics.median(commands), 2, "×")
    row.at_least("≥ 1,000 operations/s over 16 connections", statistics.median(rates), 1000, "/s")
    return row


def transfer(bench):
    size = 1 << (24 if bench.quick else 30)
    row = Row("transfer", "a file of 1 GiB, up and down", "REST: bytes by the time until the response, or until the last byte; a write is on disk then")
    up, down, grown = [], [], []
    piece = os.urandom(1 << 20)
    with bench.server() as server:
        client = server.client()
        sandbox = client.create(resources={"disk": "8g"})
        path = path_of(sandbox, "workspace/large")
        client.put(path, piece)
        before = server.memory()
        for _ in range(3):
            began = time.perf_counter()
            client.put(path, (piece for _ in range(size >> 20)), size)
            up.append(size / (time.perf_counter() - began) / 1e6)
            grown.append((server.memory() - before) / 2**20)
            began = time.perf_counter()
            assert client.drain(path) == size
            down.append(size / (time.perf_counter() - began) / 1e6)
            grown.append((server.memory() - before) / 2**20)
    row.add(OURS, "up", "MB/s", summary(up))
    row.add(OURS, "down", "MB/s", summary(down))
    row.add(OURS, "server's memory grew by", "MiB", summary(grown))
    row.at_least("up: ≥ 300 MB/s", statistics.median(up), 300, "MB/s")
    row.at_least("down: ≥ 300 MB/s", statistics.median(down), 300, "MB/s")
    row.at_most("memory flat (≤ 32 MiB more)", max(grown), 32, "MiB")
    return row


def archive(bench):
    count = FILES // 20 if bench.quick else FILES
    row = Row("archive", f"a directory of {count:,} files of 1 KiB, up and down", "REST with a tar archive; peer: docker cp of the same archive")
    up, down, docker_up, docker_down = [], [], [], []
    data = tar_of(count)
    with bench.server() as server, tempfile.TemporaryDirectory() as home:
        client = server.client()
        sandbox = client.create()
        for turn in range(3):
            # A new one, so that nothing is overwritten.
            bench.docker.start("copy", writable=True)
            path = path_of(sandbox, f"workspace/tree-{turn}") + "?archive=tar"
            began = time.perf_counter()
            client.put(path, data)
            up.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert client.drain(path) >= count * 1024
            down.append(time.perf_counter() - began)
            began = time.perf_counter()
            subprocess.run(bench.docker.command("cp", "-", "copy:/"), input=data, check=True, stdout=subprocess.DEVNULL)
            docker_up.append(time.perf_counter() - began)
            began = time.perf_counter()
            with open(os.path.join(home, "archive"), "wb") as file:
                subprocess.run(bench.docker.command("cp", "copy:/tree", "-"), check=True, stdout=file)
            docker_down.append(time.perf_counter() - began)
            bench.docker.quiet("rm", "-f", "copy")
    for what, ours, theirs in (("up", up, docker_up), ("down", down, docker_down)):
        row.add(OURS, what, "s", summary(ours))
        row.add("docker cp", what, "s", summary(theirs))
        row.at_least(f"{what}: ≥ 2 × as fast as `docker cp`", statistics.median(theirs) / statistics.median(ours), 2, "×")
    return row


def tar_of(count):
    """An archive of a directory `tree` with files of 1 KiB."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for index in range(count):
            entry = tarfile.TarInfo(f"tree/{index // 100:03}/{index:05}")
            entry.size = SMALL
            tar.addfile(entry, io.BytesIO(b"x" * SMALL))
    return buffer.getvalue()
