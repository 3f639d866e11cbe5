"""The examples in `examples/python/`, as programs of their own, and the example of the README."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Dict, List

import pytest

from server import REPOSITORY, TestServer

EXAMPLES = REPOSITORY / "examples" / "python"

# Lines that the output must have.
EXPECTED: Dict[str, List[str]] = {
    "hello.py": ["Hello from /workspace"],
    "parallel_forks.py": ["20 forks, passed: [17]"],
    "streaming_build.py": ["building the linker", "the build ended with 2"],
    "terminal.py": ["40 100", "the shell exited with 3"],
    "tool_loop.py": ["-1", "5", "edited add.sh", "+echo $(($1 + $2))", "The program adds two numbers."],
    "two_agents.py": [
        "writer: landed, conflicts: 0",
        "editor: in_review, conflicts: 1",
        "index.md: '# A guide\\n' or '# The guide\\n'",
        "# The guide",
        "['editor.md', 'index.md', 'writer.md']",
    ],
    "web_app.py": ["[8000]", "<h1>Hello from the sandbox</h1>", "HTTP/1.0 200 OK"],
}

# Patterns of outputs that depend on the machine.
PATTERNS: Dict[str, str] = {
    "nfs_mount.py": r"the sandbox reads: Hello over NFS\n"
    r"|(this machine has no mount\.nfs|only root may mount on Linux)\nhint: [^\n]*sudo mount -t nfs [^\n]*\n",
}

# Needs no server, but another package, whose tests run it: `sdk-python-state/tests/test_package.py`.
WITHOUT_SERVER = {"mcts.py"}


def run(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*EXPECTED, *PATTERNS, *WITHOUT_SERVER}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(server: TestServer, name: str) -> None:
    lines = [line.rstrip("\r") for line in run(str(EXAMPLES / name)).splitlines()]
    for line in EXPECTED[name]:
        assert line in lines, lines


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_example_whose_output_depends_on_the_machine(server: TestServer, name: str) -> None:
    output = run(str(EXAMPLES / name))
    assert re.fullmatch(PATTERNS[name], output), output


def test_the_examples_of_the_readme_run(server: TestServer) -> None:
    text = (REPOSITORY / "sdk-python" / "README.md").read_text(encoding="utf-8")
    programs = [code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "import" in code]
    assert len(programs) >= 3
    for program in programs:
        run("-c", program)
