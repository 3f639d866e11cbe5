"""HTTP server in a sandbox, for the tests of previews."""

import base64
import hashlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
CONNECTIONS = 0
PATTERN = bytes(range(256)) * 4096


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        global CONNECTIONS
        super().setup()
        with LOCK:
            CONNECTIONS += 1
            self.number = CONNECTIONS

    def log_message(self, *_):
        pass

    def reply(self, body, *headers, status=200):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/stream":
            self.stream()
        elif path == "/endless":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"begun")
            self.wfile.flush()
            self.rfile.read(1)
        elif path == "/large":
            size = int(self.path.split("?")[1])
            self.send_response(200)
            self.send_header("Content-Length", str(size * len(PATTERN)))
            self.end_headers()
            for _ in range(size):
                self.wfile.write(PATTERN)
        elif path == "/headers":
            self.reply(
                b"x",
                ("Set-Cookie", "a=1; Domain=localhost; Path=/"),
                ("Set-Cookie", "workspace_preview=taken"),
                ("Clear-Site-Data", '"*"'),
                ("Service-Worker-Allowed", "/"),
                ("Alt-Svc", 'h2=":1"'),
                ("Strict-Transport-Security", "max-age=1"),
                ("Content-Security-Policy", "default-src *"),
                ("Keep-Alive", "timeout=5"),
                ("X-Own", "kept"),
            )
        elif path == "/redirect":
            self.reply(b"", ("Location", "/echo"), status=302)
        elif path == "/garbage":
            self.wfile.write(b"this is not HTTP\r\n\r\n")
            self.close_connection = True
        elif path == "/socket":
            self.socket()
        else:
            self.echo(b"")

    do_HEAD = do_GET

    def do_POST(self):
        if self.path == "/early":
            self.reply(b"early")
        elif self.path == "/hash":
            self.reply(hashlib.sha256(self.body()).hexdigest().encode())
        else:
            self.echo(self.body())

    def echo(self, body):
        headers = [[name.lower(), value] for name, value in self.headers.items()]
        said = {"method": self.command, "path": self.path, "headers": headers, "connection": self.number}
        said["body"] = body.decode("latin-1")
        self.reply(json.dumps(said).encode())

    def stream(self):
        """Sends one part, and the other when the test has made a file."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"4\r\none\n\r\n")
        self.wfile.flush()
        while not os.path.exists("/tmp/go"):
            time.sleep(0.01)
        self.wfile.write(b"4\r\ntwo\n\r\n0\r\n\r\n")

    def socket(self):
        """Echoes WebSocket messages of up to 125 bytes until the client closes."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([head[0], len(data)]) + data)
            self.wfile.flush()
            if head[0] & 15 == 8:
                return


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), App).serve_forever()
