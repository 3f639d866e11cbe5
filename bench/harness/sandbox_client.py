"""A server of ours on loopback, and clients that cost as little as Python can."""

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time

KEY = "a-key-for-the-benchmark-0123456789"
# Seconds without a byte of an answer until a client gives up.
CLIENT_TIMEOUT = 900
# Limits that would be measured instead of the server. The report names them.
OVERRIDDEN = {"RATE_LIMIT": "off", "MAX_SANDBOXES": "600", "MAX_CONCURRENT_CREATIONS": "10"}


class Server:
    """`workspace-server` with settings of its own, as this user or another, stopped when done.

    Its data directory is a temporary one, or `home`, an empty directory that whoever made it removes.
    """

    running = []

    def __init__(self, binaries, user=None, home=None, **settings):
        self.temporary = home is None
        self.home = home or tempfile.mkdtemp(prefix="workspace-bench-")
        if user is not None:
            os.chown(self.home, user, user)
        self.port = free_port()
        self.words = [os.path.join(binaries, "workspace-server")]
        self.user = user
        self.environment = {
            "PATH": os.environ["PATH"],
            "DATA_DIR": self.home,
            "API_KEY": KEY,
            "API_PORT": str(self.port),
            "AGENT_PROGRAM": os.path.join(binaries, "workspace-agent"),
            "RUST_LOG": "warn",
            **OVERRIDDEN,
            **settings,
        }
        self.process = None
        Server.running.append(self)
        try:
            self.start()
        except BaseException:
            self.destroy()
            raise

    def start(self):
        self.process = subprocess.Popen(
            self.words,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            # Ctrl-C is for the harness, which then ends the server.
            start_new_session=True,
        )
        self.wait()

    def wait(self):
        for _ in range(500):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self.process.returncode}")
            time.sleep(0.01)
        raise TimeoutError("the server did not come up")

    def client(self):
        return Client(self.port)

    def memory(self):
        """Bytes that are resident in the server."""
        return process_memory(self.process.pid, "status", "VmRSS")

    def stop(self):
        try:
            self.end()
        finally:
            self.destroy()

    def destroy(self):
        """Kills the program and the processes of its sandboxes if they still run, and removes its mounts and files."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        kill_sandboxes(self.home)
        unmount_below(self.home)
        if self.temporary:
            subprocess.run(["rm", "-rf", self.home], check=True)
        if self in Server.running:
            Server.running.remove(self)

    @classmethod
    def destroy_all(cls):
        """Does so for all servers that were not stopped, because something failed."""
        for server in list(cls.running):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                server.destroy()

    def end(self):
        """Removes all sandboxes and ends the program; what else it keeps stays for the next `start`."""
        client = self.client()
        while True:
            ids = [item["id"] for item in client.ask("GET", "/api/v1/sandboxes?limit=50")["items"]]
            if not ids:
                break
            client.ask("POST", "/api/v1/sandboxes/batch-delete", {"ids": ids, "complete": False})
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        else:
            self.destroy()


class Client:
    """One connection that is kept."""

    def __init__(self, port, key=KEY):
        self.port = port
        self.key = key
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLIENT_TIMEOUT)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method, path, body=None, more=None):
        headers = {"Authorization": f"Bearer {self.key}", **(more or {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(body)
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]}")
        return json.loads(text) if text else None

    def put(self, path, body, size=None):
        """Writes content: bytes, or an iterator of pieces with their total size."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/octet-stream"}
        headers["Content-Length"] = str(len(body) if size is None else size)
        self.connection.request("PUT", path, body, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"PUT {path}: {answer.status} {text[:500]}")

    def get(self, path):
        """Content at a path."""
        self.connection.request("GET", path, headers={"Authorization": f"Bearer {self.key}"})
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"GET {path}: {answer.status} {content[:500]}")
        return content

    def drain(self, path):
        """Number of bytes at a path, which are read and dropped."""
        self.connection.request("GET", path, headers={"Authorization": f"Bearer {self.key}"})
        answer = self.connection.getresponse()
        if answer.status >= 400:
            raise RuntimeError(f"GET {path}: {answer.status} {answer.read()[:500]}")
        buffer, total = bytearray(1 << 20), 0
        while count := answer.readinto(buffer):
            total += count
        return total

    def create(self, **more):
        return self.ask("POST", "/api/v1/sandboxes", {"template": "base", **more})["id"]

    def run(self, sandbox, command):
        return self.ask("POST", f"/api/v1/sandboxes/{sandbox}/process/run", {"command": command})

    def delete(self, sandbox):
        self.ask("DELETE", f"/api/v1/sandboxes/{sandbox}")

    def stream(self, sandbox, command):
        """Bytes of answer until the command ended."""
        body = json.dumps({"command": command, "stream": True, "timeout": 600_000, "overflow": "block"})
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        self.connection.request("POST", f"/api/v1/sandboxes/{sandbox}/process/run", body, headers)
        answer = self.connection.getresponse()
        buffer, total, tail = bytearray(1 << 20), 0, b""
        while count := answer.readinto(buffer):
            total += count
            tail = (tail + bytes(buffer[max(0, count - 400) : count]))[-400:]
        if b'"exitCode":0' not in tail:
            raise RuntimeError(f"the stream broke: {tail[-200:]}")
        return total


class Terminal:
    """A terminal over WebSocket, as little of the protocol as is needed."""

    def __init__(self, client, sandbox):
        opened = client.ask("POST", f"/api/v1/sandboxes/{sandbox}/pty", {"cols": 80, "rows": 24, "shell": "/bin/sh"})
        self.socket = socket.create_connection(("127.0.0.1", client.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        path = f"/api/v1/sandboxes/{sandbox}/pty/{opened['id']}/ws?binary=true"
        self.buffer = open_websocket(self.socket, path, f"Host: localhost\r\nAuthorization: Bearer {KEY}\r\n")

    def type_in(self, data):
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self.socket.sendall(struct.pack("!BB", 0x82, 0x80 | len(data)) + mask + masked)

    def read_until(self, wanted):
        seen = b""
        while wanted not in seen:
            seen += self.frame()
        return seen

    def frame(self):
        length = self.take(2)[1] & 0x7F
        if length == 126:
            length = struct.unpack("!H", self.take(2))[0]
        elif length == 127:
            length = struct.unpack("!Q", self.take(8))[0]
        return self.take(length)

    def take(self, count):
        while len(self.buffer) < count:
            piece = self.socket.recv(65536)
            if not piece:
                raise RuntimeError("the terminal's connection ended")
            self.buffer += piece
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken


def open_websocket(connection, path, headers):
    """Makes a connection a WebSocket. Returns what was received of its messages."""
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    return start_response(connection, path, headers + upgrade, 101)


def start_response(connection, path, headers, status):
    """Sends a GET and reads the head of the response, which must have this status. Returns what was received of the body."""
    connection.sendall(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        if not piece:
            raise RuntimeError(f"GET {path}: the connection ended after {received[:500]}")
        received += piece
    head, body = received.split(b"\r\n\r\n", 1)
    if f" {status} ".encode() not in head.split(b"\r\n", 1)[0]:
        raise RuntimeError(f"GET {path}: {received[:500]}")
    return body


def kill_sandboxes(home):
    """Kills the processes of the sandboxes that have files in the data directory of a server, by their PIDs."""
    with contextlib.suppress(FileNotFoundError):
        ours = {os.fsencode(name) for name in os.listdir(os.path.join(home, "sandboxes"))}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                if b"--sandbox" in words and ours.intersection(words):
                    os.kill(int(pid), signal.SIGKILL)


def unmount_below(directory):
    """Removes the mounts below a directory, the newest first."""
    below = directory.rstrip("/") + "/"
    with open("/proc/self/mounts", encoding="utf-8") as lines:
        points = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    for point in reversed([point for point in points if point.startswith(below)]):
        subprocess.run(["umount", "--lazy", point], check=False, stderr=subprocess.DEVNULL)


def process_memory(pid, file, field):
    """Bytes that a file of a process below /proc has in a field; 0 without that field, as of a process that ended."""
    with open(f"/proc/{pid}/{file}", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
