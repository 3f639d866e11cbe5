"""Client programs of the SDKs, which perform a request per line on stdin and print its result as a line of JSON."""

import json
import os
import subprocess

from sandbox_client import KEY

HARNESS = os.path.dirname(os.path.abspath(__file__))


class ClientProgram:
    """Running client. Use it in a `with` block."""

    def __init__(self, words, port):
        environment = {
            **os.environ,
            "WORKSPACE_API_URL": f"http://127.0.0.1:{port}",
            "WORKSPACE_API_KEY": KEY,
            "WORKSPACE_DEBUG": "",
        }
        self.process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def ask(self, work, **parameters):
        """The result of one piece of work."""
        self.process.stdin.write(json.dumps({"work": work, **parameters}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the client ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {work}: {answer['error']}")
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class NodeClient(ClientProgram):
    """Client in TypeScript on Node.js."""

    name = "TypeScript"

    def __init__(self, port):
        super().__init__(["node", os.path.join(HARNESS, "sdk_client.mjs")], port)


class PythonClient(ClientProgram):
    """Client in Python."""

    name = "Python"

    def __init__(self, python, port):
        super().__init__([python, os.path.join(HARNESS, "sdk_client.py")], port)
