"""The row about sandboxes whose whole disk is kept."""

import io
import statistics
import tarfile
import tempfile
import time

from row import Row
from sandbox_peers import make_root
from sandbox_rows import OURS, add

TEMPLATE = "/api/v1/templates/busybox"
IN_WORKSPACE = "for i in 0 1 2 3 4 5 6 7 8 9; do echo $$ > file-$i; done"
IN_ROOT = "mkdir -p /home/sandbox/d; cd /home/sandbox/d; " + IN_WORKSPACE
COMPARED = ("commit", "fork", "restore")
OPERATIONS = ("create", *COMPARED)


def archive():
    """A root filesystem of busybox, as a tar file."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory, tarfile.open(fileobj=packed, mode="w") as tar:
        make_root(directory)
        tar.add(directory, ".")
    return packed.getvalue()


def one_round(client, mode, sandbox, takes):
    """Creates, commits, forks and restores once. `takes` gets the seconds of each operation."""
    began = time.perf_counter()
    created = create(client, mode)
    takes["create"].append(time.perf_counter() - began)
    client.delete(created)
    path = f"/api/v1/sandboxes/{sandbox}"

    def timed(operation, body):
        began = time.perf_counter()
        answer = client.ask("POST", f"{path}/{operation}", body)
        takes[operation].append(time.perf_counter() - began)
        return answer

    snapshot = timed("commit", {})["snapshot"]["id"]
    forked = timed("fork", {})
    client.run(sandbox, IN_WORKSPACE)
    timed("restore", {"snapshot": snapshot})
    for fork in forked["sandboxes"]:
        client.delete(fork["id"])


def create(client, mode):
    return client.create(template="busybox", root=mode)


def root(bench):
    row = Row("root", "sandboxes with a kept root", "REST over a kept connection; the root of busybox; before each round a command changes 10 files in the workspace, and 10 more in the root where it says so; the kinds take turns")
    kinds = {
        "root discarded": ("discarded", IN_WORKSPACE),
        "root kept": ("kept", IN_WORKSPACE),
        "root kept and changed": ("kept", f"{IN_WORKSPACE}; {IN_ROOT}"),
    }
    times = {kind: {operation: [] for operation in OPERATIONS} for kind in kinds}
    with bench.server() as server:
        client = server.client()
        client.put(TEMPLATE, archive())
        sandboxes = {kind: create(client, mode) for kind, (mode, _) in kinds.items()}
        for number in range(bench.rounds + 2):
            for kind, (mode, command) in kinds.items():
                client.run(sandboxes[kind], command)
                one_round(client, mode, sandboxes[kind], times[kind])
                if number == 1:
                    times[kind] = {operation: [] for operation in OPERATIONS}
    for kind, taken in times.items():
        for operation in OPERATIONS:
            add(row, OURS, f"{operation}, {kind}", taken[operation])

    def ratio(operation):
        kept, discarded = (statistics.median(times[kind][operation]) for kind in ("root kept", "root discarded"))
        return kept / discarded

    for operation in COMPARED:
        row.at_most(f"{operation} ≤ 1.3 × a discarded root", ratio(operation), 1.3, "×")
    return row
