"""Programs that tests run in processes of their own."""

from __future__ import annotations

import subprocess
import sys


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output


def run(code: str, *arguments: object) -> str:
    return finish(start(code, *arguments))
