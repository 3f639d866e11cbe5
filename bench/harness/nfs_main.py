"""Measures the NFS server beside nfs-ganesha: processor time of the server, and elapsed time."""

import argparse
import glob
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from programs import ROOT, release_directory
from sandbox_client import free_port

# Name, calls of one client, clients.
ROWS = [
    ("create", 5000, 1),
    ("stat", 20000, 1),
    ("stat", 5000, 8),
    ("rename", 5000, 1),
    ("symlink", 5000, 1),
    ("unlink", 5000, 1),
    ("readdir", 10, 1),
    ("write", 1024, 1),
    ("read", 1024, 1),
    ("read", 128, 8),
]

GANESHA = """
NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount_port}; Protocols = 3; Bind_addr = 127.0.0.1;
    Enable_NLM = false; Enable_RQUOTA = false; }}
EXPORT_DEFAULTS {{ Access_Type = RW; Squash = No_Root_Squash; SecType = sys, none; }}
EXPORT {{ Export_Id = 1; Path = {directory}; Pseudo = /export; Protocols = 3; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = WARN; }}
"""


def wait_for(port):
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


class Server:
    """A server of one directory."""

    def __init__(self, name, process, url):
        self.name, self.process, self.url = name, process, url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def processor_seconds(self):
        """Returns the processor time of all threads, in nanoseconds resolution."""
        total = 0
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            try:
                total += int(pathlib.Path(path).read_text().split()[0])
            except FileNotFoundError:
                pass
        return total / 1e9


def embedded(work, program):
    directory, port = work / "embedded", free_port()
    directory.mkdir()
    command = [program, str(directory), str(work / "state"), str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for(port)
    return Server("embedded", process, f"nfs://127.0.0.1/export/?nfsport={port}&mountport={port}")


def ganesha(work):
    directory, port, mount_port = work / "ganesha", free_port(), free_port()
    directory.mkdir()
    config = work / "ganesha.conf"
    config.write_text(GANESHA.format(directory=directory, port=port, mount_port=mount_port))
    command = ["ganesha.nfsd", "-F", "-f", config, "-L", work / "ganesha.log", "-p", work / "ganesha.pid"]
    process = subprocess.Popen(command)
    wait_for(mount_port)
    wait_for(port)
    url = f"nfs://127.0.0.1{directory}/?nfsport={port}&mountport={mount_port}"
    return Server("ganesha", process, url)


def measure(server, client, row, count, clients):
    """Returns processor and elapsed time of one call, in microseconds."""
    command = [client, server.url, row, str(count)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for _ in range(clients)]
    for process in running:
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{row} failed on {server.name}")
    os.sync()
    before, begin = server.processor_seconds(), time.monotonic()
    for process in running:
        print("go", file=process.stdin, flush=True)
    for process in running:
        float(process.stdout.readline())
    elapsed, used = time.monotonic() - begin, server.processor_seconds() - before
    for process in running:
        process.communicate("end\n")
    calls = count * clients
    return used / calls * 1e6, elapsed / calls * 1e6


def build(work):
    client = work / "client"
    source = os.path.join(ROOT, "bench/harness/nfs_client.c")
    subprocess.run(["cc", "-O2", "-o", client, source, "-lnfs"], check=True)
    program = os.environ.get("WORKSPACE_BENCH_NFS_SERVER")
    if not program:
        command = ["cargo", "build", "--release", "--workspace", "--example", "serve"]
        subprocess.run(command, check=True, cwd=ROOT)
        program = os.path.join(release_directory(), "examples/serve")
    return client, program


def table(results):
    print("| call | clients | CPU µs | of ganesha | ratio | elapsed µs | of ganesha | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for (row, _, clients), rounds in results.items():
        ours, theirs = (
            [statistics.median(column) for column in zip(*rounds[name])] for name in ("embedded", "ganesha")
        )
        cells = [row, str(clients)]
        for mine, peer in zip(ours, theirs):
            cells += [f"{mine:.1f}", f"{peer:.1f}", f"{mine / peer:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def main(arguments, usage):
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("rows", nargs="*")
    options = parser.parse_args(arguments)
    for program in ("cc", "ganesha.nfsd"):
        if not shutil.which(program):
            sys.exit(f"{program} is missing; install libnfs-dev, nfs-ganesha and nfs-ganesha-vfs")
    base = os.environ.get("WORKSPACE_BENCH_DIR")
    with tempfile.TemporaryDirectory(prefix="workspace-bench-nfs-", dir=base) as directory:
        work = pathlib.Path(directory)
        client, program = build(work)
        with embedded(work, program) as one, ganesha(work) as other:
            results = {}
            for row, count, clients in ROWS:
                if options.rows and row not in options.rows:
                    continue
                count = max(count // 20, 1) if options.quick else count
                rounds = {one.name: [], other.name: []}
                for number in range(1 if options.quick else options.rounds):
                    # The first one finds the caches as the last row has left them.
                    for server in (one, other) if number % 2 else (other, one):
                        rounds[server.name].append(measure(server, client, row, count, clients))
                results[row, count, clients] = rounds
                print(row, clients, rounds, file=sys.stderr, flush=True)
            table(results)
    return 0
