"""Starts a web server in a sandbox, and shows it to everybody who has the URL of its preview."""

import urllib.request

from workspace_sdk.sync import WorkspaceClient

SERVER = "python3 -u -m http.server 8000 --bind 127.0.0.1"

with WorkspaceClient() as client, client.sandbox.create(template="base") as sandbox:
    sandbox.files.write("index.html", "<h1>Hello from the sandbox</h1>\n")
    server = sandbox.process.start(SERVER, timeout=0)
    # It prints a line when it listens.
    for event in server.output():
        if event.type == "stdout" or event.type == "exit":
            break
    print([port.port for port in sandbox.ports.list()])

    preview = sandbox.ports.preview(8000, expires_in_seconds=600)
    with urllib.request.urlopen(preview.path_url) as response:
        print(response.read().decode(), end="")

    # The same without a preview: a connection to the port.
    with sandbox.ports.connect(8000) as connection:
        connection.write(b"GET / HTTP/1.0\r\n\r\n")
        print(connection.read().split(b"\r\n")[0].decode())
    server.kill()
