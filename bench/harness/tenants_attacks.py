"""Attacks on shared resources. Each is a script for Python inside a sandbox; it takes what it can get, holds it for
SECONDS and ends. `connections` alone runs outside: it needs no sandbox and no key."""

import contextlib
import socket
import time

SECONDS = 20

PREAMBLE = f"""
import errno, os, resource, socket, sys, time
end = time.monotonic() + {SECONDS}
def hold(): time.sleep(max(0, end - time.monotonic()))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
"""

FORK = """
def spin():
    while time.monotonic() < end:
        try:
            if os.fork() == 0: return spin()
        except OSError: pass
spin()
os._exit(0)
"""

MEMORY = """
while time.monotonic() < end:
    if os.fork() == 0:
        kept = []
        try:
            while True: kept.append(bytearray(os.urandom(4096)) * 256)
        except MemoryError: os._exit(0)
    try: os.wait()
    except OSError: pass
"""

DISK = """
piece = os.urandom(1 << 20)
with open("/workspace/filled", "wb") as file:
    while time.monotonic() < end:
        try: file.write(piece)
        except OSError:
            file.seek(0)
            time.sleep(0.01)
"""

INODES = """
count = 0
while time.monotonic() < end:
    try:
        os.mkdir(f"/workspace/{count}")
        for name in range(1000): open(f"/workspace/{count}/{name}", "w").close()
        count += 1
    except OSError: time.sleep(0.01)
"""

# Descriptors in flight: sent over a socket that nobody reads. The kernel counts them per user.
DESCRIPTORS = """
import array
kept = []
zero = os.open("/dev/null", os.O_RDONLY)
packet = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [zero] * 250))]
def fill():
    while time.monotonic() < end:
        try: pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError: return
        kept.append(pair)
        pair[0].setblocking(False)
        try:
            while True: pair[0].sendmsg([b"x"], packet)
        except BlockingIOError: continue
        except OSError: return
fill()
try:
    while True: kept.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
hold()
"""

INOTIFY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(100_000):
    if libc.inotify_init() < 0: break
hold()
"""

PIPES = """
import fcntl
kept = []
try:
    while True:
        pair = os.pipe()
        kept.append(pair)
        try: fcntl.fcntl(pair[1], 1031, 1 << 20)
        except OSError: pass
        os.set_blocking(pair[1], False)
        try:
            while True: os.write(pair[1], bytes(65536))
        except BlockingIOError: pass
except OSError: pass
hold()
"""

OUTPUT = """
piece = b"x" * 65536
while time.monotonic() < end: os.write(1, piece)
"""

# What runs inside, by name, with the limits that its sandbox asks for.
INSIDE = {
    "fork": (FORK, {}),
    "memory": (MEMORY, {"resources": {"memory": "256m"}}),
    "disk": (DISK, {"resources": {"disk": "256m"}}),
    "inodes": (INODES, {"resources": {"disk": "256m"}}),
    "descriptors": (DESCRIPTORS, {}),
    "inotify": (INOTIFY, {}),
    "pipes": (PIPES, {"resources": {"memory": "512m"}}),
    "output": (OUTPUT, {"resources": {"disk": "256m"}}),
}


def script(name):
    return PREAMBLE + INSIDE[name][0]


def connections(port, stop):
    """Opens connections that say nothing, and opens them again when they are closed."""
    opened = []
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end and not stop.is_set():
            if len(opened) >= 1500:
                opened.pop(0).close()
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), timeout=1)
                opened.append(connection)
            time.sleep(0.001)
    finally:
        for connection in opened:
            connection.close()
