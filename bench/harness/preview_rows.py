"""The rows about previews: HTTP requests and WebSockets to a server in a sandbox."""

import os
import selectors
import socket
import statistics
import time

from row import Row
from sandbox_client import open_websocket
from sandbox_rows import OURS, add
from timing import summary

PORT = 3000
# HTTP server with one thread, which the tests of previews use, too.
PROGRAM = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../crates/server/tests/api/real/previews/sockets.py"
)
SOCKETS = 1000
CONNECTIONS = 32
# Runs in the sandbox, against the same server without a preview. Prints the seconds of each request.
DIRECT = """
import socket, time
stream = socket.create_connection(("127.0.0.1", {port}))
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range({rounds}):
    began = time.perf_counter()
    stream.sendall(b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    while not stream.recv(65536).endswith(b"ok"):
        pass
    print(time.perf_counter() - began)
"""


class Preview:
    """A preview of the program in a new sandbox."""

    def __init__(self, client):
        self.port = client.port
        self.sandbox = client.create(resources={"processes": 64})
        with open(PROGRAM, "rb") as file:
            client.put(f"/api/v1/sandboxes/{self.sandbox}/files/tmp/server.py", file.read())
        command = {"command": f"exec python3 /tmp/server.py {PORT}", "background": True, "timeout": 0}
        client.ask("POST", f"/api/v1/sandboxes/{self.sandbox}/process/run", command)
        made = client.ask("POST", f"/api/v1/sandboxes/{self.sandbox}/ports/{PORT}", {"expiresInSeconds": 3600})
        host = f"{PORT}-{self.sandbox}.localhost"
        self.head = f"Host: {host}\r\nX-Workspace-Preview-Token: {made['token']}\r\n"
        self.request = f"GET / HTTP/1.1\r\n{self.head}\r\n".encode()
        while True:
            stream = self.connect()
            stream.sendall(self.request)
            if stream.recv(65536).startswith(b"HTTP/1.1 200"):
                break
            time.sleep(0.05)

    def connect(self):
        stream = socket.create_connection(("127.0.0.1", self.port))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def times(self, rounds):
        """Seconds of each request over one kept connection."""
        stream, samples = self.connect(), []
        for _ in range(rounds):
            began = time.perf_counter()
            stream.sendall(self.request)
            while not stream.recv(65536).endswith(b"ok"):
                pass
            samples.append(time.perf_counter() - began)
        return samples

    def rate(self, seconds):
        """Requests per second over kept connections, each with one request at a time."""
        selector, ended = selectors.DefaultSelector(), 0
        for _ in range(CONNECTIONS):
            stream = self.connect()
            selector.register(stream, selectors.EVENT_READ)
            stream.sendall(self.request)
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            for key, _ in selector.select():
                # A response is smaller than a segment.
                if key.fileobj.recv(65536).endswith(b"ok"):
                    ended += 1
                    key.fileobj.sendall(self.request)
        selector.close()
        return ended / took

    def websocket(self):
        stream = self.connect()
        open_websocket(stream, "/socket", self.head)
        return stream


def requests(bench):
    scope = f"HTTP over a kept connection, and over {CONNECTIONS} at once; the same server from inside its sandbox"
    row = Row("preview", "HTTP through a preview to a server in a sandbox", scope)
    rounds = bench.rounds * 20
    with bench.server() as server:
        client = server.client()
        preview = Preview(client)
        preview.times(rounds // 4)
        direct_script = DIRECT.format(port=PORT, rounds=rounds)
        client.put(f"/api/v1/sandboxes/{preview.sandbox}/files/tmp/direct.py", direct_script.encode())
        through, direct = [], []
        for _ in range(3):
            through += preview.times(rounds)
            printed = client.run(preview.sandbox, "python3 /tmp/direct.py")
            direct += [float(line) for line in printed["stdout"].split()]
        rates = [preview.rate(1 if bench.quick else 5) for _ in range(3)]
    add(row, OURS, "request through the preview", through)
    add(row, OURS, "request inside the sandbox", direct)
    row.add(OURS, f"{CONNECTIONS} connections", "requests/s", summary(rates))
    added = (statistics.median(through) - statistics.median(direct)) * 1000
    row.at_most("p50 added ≤ 1 ms", added, 1, "ms")
    row.at_least("≥ 5,000 requests/s keep-alive", statistics.median(rates), 5000, "/s")
    return row


def sockets(bench):
    row = Row("sockets", f"{SOCKETS:,} WebSockets through one preview", "opened one after the other; then a message to each and back")
    with bench.server() as server:
        client = server.client()
        preview = Preview(client)
        before, began, streams = server.memory(), time.perf_counter(), []
        for _ in range(SOCKETS):
            streams.append(preview.websocket())
        opened = time.perf_counter() - began
        turns = []
        for _ in range(3):
            began = time.perf_counter()
            for stream in streams:
                stream.sendall(b"\x82\x84\x00\x00\x00\x00ping")
            for stream in streams:
                received = b""
                while len(received) < 6:
                    received += stream.recv(6 - len(received))
                assert received == b"\x82\x04ping", received
            turns.append(time.perf_counter() - began)
        grown = (server.memory() - before) / 2**20
        still = client.run(preview.sandbox, "true")["exitCode"]
    assert still == 0
    row.add(OURS, "open all", "s", summary([opened]))
    row.add(OURS, "a message to each and back", "s", summary(turns))
    row.add(OURS, "server's memory grew by", "MiB", summary([grown]))
    row.at_least("1,000 WebSockets open", len(streams), SOCKETS, "WebSockets")
    return row
