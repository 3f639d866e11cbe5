"""The rows about sandboxes. Each is measured with its peers taking turns."""

import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from concurrency import start_threads
from row import Row
from sandbox_client import KEY, Terminal, process_memory
from sandbox_peers import time_to_output
from timing import p95, p99, summary

OURS = "workspace"
NOBODY = 65_534


def add(row, tool, what, samples):
    """Median and 95th percentile in milliseconds."""
    row.add(tool, what, "ms", summary(samples, 1000))
    row.add(tool, f"{what}, p95", "ms", summary([p95(samples)], 1000))


def create_and_run(client):
    """Seconds from the wish for a sandbox to its first command's output."""
    began = time.perf_counter()
    sandbox = client.create()
    result = client.run(sandbox, "echo hello")
    took = time.perf_counter() - began
    assert result["stdout"] == "hello\n", result
    client.delete(sandbox)
    return took


def warm(bench):
    row = Row("warm", "create to first output, pre-started", "REST create and run; peers: the program's start to its first byte")
    ours, docker = [], []
    with bench.server() as server:
        client = server.client()
        for _ in range(5):
            create_and_run(client)
        time.sleep(1)
        for _ in range(bench.rounds):
            ours.append(create_and_run(client))
            docker.append(time_to_output(bench.docker.run()))
    add(row, OURS, "create and run", ours)
    add(row, "docker run", "create and run", docker)
    ratio = statistics.median(docker) / statistics.median(ours)
    row.at_least("≥ 30 × faster than `docker run`", ratio, 30, "×")
    row.at_most("p50 ≤ 10 ms", statistics.median(ours) * 1000, 10, "ms")
    return row


def cold(bench):
    row = Row("cold", "create to first output, nothing pre-started", "as above with POOL_SIZE=0; runc and crun with Docker's own configuration")
    samples = {OURS: []}
    with bench.server(POOL_SIZE="0") as server:
        client = server.client()
        create_and_run(client)
        for turn in range(bench.rounds):
            samples[OURS].append(create_and_run(client))
            for peer in rotated([bench.docker, *bench.oci, bench.bubblewrap], turn):
                samples.setdefault(peer.name, []).append(time_to_output(peer.run()))
    for tool, taken in samples.items():
        add(row, tool, "create and run", taken)
    ours = statistics.median(samples[OURS])
    row.at_least("≥ 8 × faster than `docker run`", statistics.median(samples["docker run"]) / ours, 8, "×")
    row.at_least("not slower than `crun run`", statistics.median(samples["crun run"]) / ours, 1, "×")
    row.notes.append("bwrap applies neither limits nor a list of system calls, and runs the machine's own programs.")
    return row


def rotated(items, by):
    by %= len(items)
    return items[by:] + items[:by]


def load(bench, server, requests, rounds, connections=16):
    """Measurements of requests that every connection sends in turn, by a client that costs little."""
    headers = [("authorization", f"Bearer {KEY}"), ("content-type", "application/json")]
    requests = [{"headers": headers, **one, "body": text(one.get("body", ""))} for one in requests]
    described = {"port": server.port, "connections": connections, "rounds": rounds, "requests": requests}
    program = [os.path.join(bench.binaries, "workspace-bench"), "requests"]
    done = subprocess.run(program, input=json.dumps(described), stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def text(body):
    return body if isinstance(body, str) else json.dumps(body)


def client_cpu(measured):
    """CPU time of the client for each request, in milliseconds."""
    return [one["client_cpu"] * 1000 / one["requests"] for one in measured]


def together(count, work):
    """Seconds until `count` of them are done that began at once."""
    barrier = threading.Barrier(count + 1)

    def one(index):
        barrier.wait()
        work(index)

    join = start_threads(count, one)
    barrier.wait()
    began = time.perf_counter()
    join()
    return time.perf_counter() - began


def makers(server):
    """50 clients, where their sandboxes' names go, and what makes one and waits for its first output."""
    clients, made = [server.client() for _ in range(50)], [None] * 50

    def make(index):
        made[index] = clients[index].create()
        assert clients[index].run(made[index], "echo hello")["stdout"] == "hello\n"

    return clients, made, make


def fifty(bench):
    row = Row("fifty", "50 sandboxes at once", "wall time until all 50 answered a command; peers: 50 started at once")
    crun = next(peer for peer in bench.oci if peer.program == "crun")
    ours, theirs = [], []
    for _ in range(max(3, bench.rounds // 10)):
        with bench.server() as server:
            _, _, make = makers(server)
            ours.append(together(50, make))
        commands = [crun.run() for _ in range(50)]
        theirs.append(together(50, lambda index, commands=commands: time_to_output(commands[index])))
    row.add(OURS, "all 50", "s", summary(ours))
    row.add("crun run", "all 50", "s", summary(theirs))
    row.at_least("not slower than 50 `crun run`", statistics.median(theirs) / statistics.median(ours), 1, "×")
    return row


def parallel(bench):
    row = Row("parallel", "50 in parallel", "how long each of 50 takes that begin at once: a sandbox and its first output, then a command; peers: 50 programs at once")
    crun = next(peer for peer in bench.oci if peer.program == "crun")
    samples = {}

    def timed(tool, what, work):
        def one(index):
            began = time.perf_counter()
            work(index)
            samples.setdefault((tool, what), []).append(time.perf_counter() - began)

        together(50, one)

    for _ in range(1 if bench.quick else 3):
        with bench.server() as server:
            clients, made, make = makers(server)
            timed(OURS, "create and run", make)
            timed(OURS, "one command", lambda index, clients=clients, made=made: clients[index].run(made[index], "true"))
        bench.docker.start("exec")
        timed("docker run", "create and run", lambda _: time_to_output(bench.docker.run()))
        commands = [crun.run() for _ in range(50)]
        timed("crun run", "create and run", lambda index, commands=commands: time_to_output(commands[index]))
        timed("docker exec", "one command", lambda _: bench.docker.quiet("exec", "exec", "/bin/true"))
        bench.docker.quiet("rm", "-f", "exec")
    for (tool, what), taken in samples.items():
        add(row, tool, what, taken)
    return row


def ordinary(bench):
    row = Row("ordinary", "as an ordinary user", "create to first output, the server and bwrap as a user without rights; the Docker daemon runs as root")
    samples = {}

    def measured(what, **settings):
        with bench.server(user=NOBODY, **settings) as server:
            client = server.client()
            for _ in range(5):
                create_and_run(client)
            time.sleep(1)
            for _ in range(bench.rounds):
                samples.setdefault((OURS, what), []).append(create_and_run(client))
                samples.setdefault(("docker run", what), []).append(time_to_output(bench.docker.run()))
                samples.setdefault(("bwrap", what), []).append(time_to_output(bench.bubblewrap.run(), NOBODY))

    measured("pre-started")
    measured("cold", POOL_SIZE="0")
    for (tool, what), taken in samples.items():
        add(row, tool, what, taken)
    warm, cold = (statistics.median(samples[OURS, what]) for what in ("pre-started", "cold"))
    docker = statistics.median(samples["docker run", "pre-started"])
    row.at_least("pre-started: ≥ 30 × faster than `docker run`", docker / warm, 30, "×")
    row.at_most("pre-started: p50 ≤ 10 ms", warm * 1000, 10, "ms")
    docker = statistics.median(samples["docker run", "cold"])
    row.at_least("cold: ≥ 8 × faster than `docker run`", docker / cold, 8, "×")
    return row


def run_true(bench):
    row = Row("run", "`true` in a running sandbox", "REST over a kept connection; peer: docker exec; then 16 connections at once")
    ours, docker = [], []
    with bench.server() as server:
        client = server.client()
        sandbox = client.create()
        bench.docker.start("exec")
        for _ in range(20):
            client.run(sandbox, "true")
        for _ in range(bench.rounds):
            began = time.perf_counter()
            client.run(sandbox, "true")
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert bench.docker.quiet("exec", "exec", "/bin/true").returncode == 0
            docker.append(time.perf_counter() - began)
        bench.docker.quiet("rm", "-f", "exec")
        request = {"method": "POST", "path": f"/api/v1/sandboxes/{sandbox}/process/run", "body": {"command": "true"}}
        measured = [load(bench, server, [request], rounds=bench.rounds * 4) for _ in range(3)]
        rates = [one["requests_per_second"] for one in measured]
    add(row, OURS, "one command", ours)
    add(row, "docker exec", "one command", docker)
    row.add(OURS, "16 connections", "/s", summary(rates))
    row.at_least("≥ 10 × faster than `docker exec`", statistics.median(docker) / statistics.median(ours), 10, "×")
    row.add(OURS, "CPU time of the client, of one command", "ms", summary(client_cpu(measured)))
    row.at_least("≥ 1,500/s over 16 connections", statistics.median(rates), 1500, "/s")
    return row


def stream(bench):
    size = 1 << (24 if bench.quick else 30)
    row = Row("stream", "a command that prints 1 GiB, over SSE", "bytes that the command printed by the time until the client has the last event")
    rates, grown = [], []
    with bench.server() as server:
        client = server.client()
        sandbox = client.create()
        client.stream(sandbox, "head -c 16777216 /dev/zero | tr '\\0' x")
        before = server.memory()
        for _ in range(3):
            began = time.perf_counter()
            assert client.stream(sandbox, f"head -c {size} /dev/zero | tr '\\0' x") > size
            rates.append(size / (time.perf_counter() - began) / 1e6)
            grown.append((server.memory() - before) / 2**20)
    row.add(OURS, "end to end", "MB/s", summary(rates))
    row.add(OURS, "server's memory grew by", "MiB", summary(grown))
    row.at_least("≥ 200 MB/s", statistics.median(rates), 200, "MB/s")
    row.at_most("memory flat (≤ 32 MiB more)", max(grown), 32, "MiB")
    row.notes.append("The command waits for the client (`overflow: block`): all of it arrives.")
    return row


def echo(bench):
    row = Row("echo", "a keystroke's echo in a terminal", "WebSocket, binary messages: from sending a byte to reading it back")
    samples = []
    with bench.server() as server:
        client = server.client()
        terminal = Terminal(client, client.create())
        terminal.type_in(b"cat\n")
        terminal.read_until(b"cat\r\n")
        time.sleep(0.3)
        for index in range(bench.rounds * 4):
            letter = bytes([97 + index % 26])
            began = time.perf_counter()
            terminal.type_in(letter)
            terminal.read_until(letter)
            samples.append(time.perf_counter() - began)
    add(row, OURS, "echo", samples)
    row.at_most("p95 ≤ 5 ms", p95(samples) * 1000, 5, "ms")
    return row


def idle(bench):
    count = 50 if bench.quick else 500
    row = Row("idle", f"{count} idle sandboxes", "proportional memory (PSS) of guests and server, kernel memory of the groups; then a command in each")
    with bench.server() as server:
        client = server.client()
        before = server.memory()
        ids = [client.create() for _ in range(count)]
        time.sleep(2)
        guests = sum(process_memory(pid, "smaps_rollup", "Pss") for pid in guests_of(server.home))
        kernel = sum(group_memory(sandbox) for sandbox in ids)
        grown = server.memory() - before
        each = (guests + grown + kernel) / count / 2**20
        usable = sum(client.run(sandbox, "echo here")["stdout"] == "here\n" for sandbox in ids)
    row.add(OURS, "guest (PSS)", "MiB", summary([guests / count / 2**20]))
    row.add(OURS, "server's share", "MiB", summary([grown / count / 2**20]))
    row.add(OURS, "group, pages of the guest included", "MiB", summary([kernel / count / 2**20]))
    row.at_least(f"all {count} usable", usable, count, "")
    row.at_most("≤ 5 MiB each, server included", each, 5, "MiB")
    return row


def agent(bench):
    row = Row("agent", "the guest agent", "its program; memory resident when it waits; from its start to its call to the server, outside of any sandbox")
    program = os.path.join(bench.binaries, "workspace-agent")
    starts, resident = [], []
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "agent.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            for _ in range(bench.rounds):
                took, memory = start_agent(program, listener, path, home)
                starts.append(took)
                resident.append(memory)
    size = os.path.getsize(program)
    row.add(OURS, "size", "MB", summary([size / 1e6]))
    row.add(OURS, "resident", "MiB", summary([memory / 2**20 for memory in resident]))
    add(row, OURS, "start", starts)
    row.at_most("under 4 MB", size / 1e6, 4, "MB")
    row.at_most("under 4 MiB resident when idle", statistics.median(resident) / 2**20, 4, "MiB")
    row.at_most("starts in under 5 ms", statistics.median(starts) * 1000, 5, "ms")
    return row


def start_agent(program, listener, path, home):
    """Seconds until it calls, and bytes that are resident then."""
    token, give = os.pipe()
    output = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    os.write(give, b"token")
    os.close(give)
    words = [program, "--sandbox", "sbx-1", "--socket", path, "--token-fd", str(token), "--output-fd", str(output)]
    began = time.perf_counter()
    with subprocess.Popen(words, pass_fds=(token, output), stderr=subprocess.DEVNULL) as process:
        connection, _ = listener.accept()
        took = time.perf_counter() - began
        os.close(token)
        os.close(output)
        time.sleep(0.05)
        memory = process_memory(process.pid, "status", "VmRSS")
        assert memory, "the agent ended"
        process.kill()
        connection.close()
    return took, memory


def guests_of(home):
    for name in os.listdir(os.path.join(home, "sandboxes")):
        try:
            with open(os.path.join(home, "sandboxes", name, "process"), encoding="utf-8") as file:
                yield int(file.read().split('"pid":')[1].split(",")[0])
        except (OSError, IndexError):
            continue


def group_memory(sandbox):
    for path in (f"/sys/fs/cgroup/memory/workspace/{sandbox}/memory.usage_in_bytes", f"/sys/fs/cgroup/workspace/{sandbox}/memory.current"):
        try:
            with open(path, encoding="utf-8") as file:
                return int(file.read())
        except OSError:
            continue
    return 0


def api(bench):
    count = 50 if bench.quick else 500
    row = Row("api", f"get and list among {count} sandboxes", "REST over a kept connection; a page has 100")
    with bench.server() as server:
        client = server.client()
        ids = [client.create() for _ in range(count)]
        get, listed = [], []
        for index in range(bench.rounds * 10):
            began = time.perf_counter()
            client.ask("GET", f"/api/v1/sandboxes/{ids[index % count]}")
            get.append(time.perf_counter() - began)
            began = time.perf_counter()
            client.ask("GET", f"/api/v1/sandboxes?limit=100&page={1 + index % max(1, count // 100)}")
            listed.append(time.perf_counter() - began)
    for what, samples in (("get", get), ("list", listed)):
        row.add(OURS, what, "ms", summary(samples, 1000))
        row.add(OURS, f"{what}, p99", "ms", summary([p99(samples)], 1000))
        row.at_most(f"{what}: p99 ≤ 10 ms", p99(samples) * 1000, 10, "ms")
    return row
