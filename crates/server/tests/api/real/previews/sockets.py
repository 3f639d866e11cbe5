"""HTTP server with one thread for many WebSockets, for the tests and measurements of previews.

`GET /` answers `ok`; a WebSocket echoes messages of up to 125 bytes.
"""

import base64
import hashlib
import selectors
import socket
import sys

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SELECTOR = selectors.DefaultSelector()


class Connection:
    def __init__(self, stream):
        self.stream = stream
        self.received = b""
        self.is_websocket = False

    def read(self):
        """Handles what has come. Returns False at the end of the connection."""
        try:
            data = self.stream.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.received += data
        if not data:
            return False
        while (self.frame if self.is_websocket else self.request)():
            pass
        return True

    def request(self):
        head, end, rest = self.received.partition(b"\r\n\r\n")
        if not end:
            return False
        self.received = rest
        lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        headers = {name.strip().lower(): value.strip() for name, _, value in lines}
        key = headers.get(b"sec-websocket-key")
        if key is None:
            self.stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
            return True
        accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
        self.stream.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        self.is_websocket = True
        return True

    def frame(self):
        size = self.received[1] & 127 if len(self.received) > 1 else 0
        if len(self.received) < 6 + size:
            return False
        mask, data = self.received[2:6], self.received[6 : 6 + size]
        plain = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        self.stream.sendall(bytes([self.received[0], size]) + plain)
        self.received = self.received[6 + size :]
        return True


def main(port):
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    listener.setblocking(False)
    SELECTOR.register(listener, selectors.EVENT_READ, None)
    while True:
        for key, _ in SELECTOR.select():
            if key.data is None:
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                SELECTOR.register(stream, selectors.EVENT_READ, Connection(stream))
            elif not key.data.read():
                SELECTOR.unregister(key.fileobj)
                key.fileobj.close()


main(int(sys.argv[1]))
