"""Exchanges pairs of names, as fast as possible, until /tmp/stop exists. Used by the tests of races on paths.

    exchange.py DIRECTORY NAME NAME [DIRECTORY NAME NAME]...

One process for each pair. Writes the number of exchanges of the slowest one to /tmp/exchanged.
"""

import ctypes
import os
import sys

RENAME_EXCHANGE = 2
LIBC = ctypes.CDLL(None, use_errno=True)


def exchange(directory, one, other):
    """Exchanges two names of a directory, which another process may rename. Returns the number of exchanges."""
    done = 0
    while not os.path.exists("/tmp/stop"):
        if LIBC.renameat2(directory, one, directory, other, RENAME_EXCHANGE) == 0:
            done += 1
        elif ctypes.get_errno() != 2:
            sys.exit(f"{one}: {os.strerror(ctypes.get_errno())}")
    return done


words = sys.argv[1:]
pairs = []
for at in range(0, len(words), 3):
    directory = os.open(words[at], os.O_PATH | os.O_DIRECTORY)
    pairs.append((directory, words[at + 1].encode(), words[at + 2].encode()))
pipes = []
for pair in pairs:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, b"%d" % exchange(*pair))
        os._exit(0)
    os.close(writer)
    pipes.append(reader)
open("/tmp/racing", "w").close()
counts = [int(os.read(reader, 32) or b"0") for reader in pipes]
with open("/tmp/exchanged.new", "w") as file:
    file.write(str(min(counts)))
os.rename("/tmp/exchanged.new", "/tmp/exchanged")
