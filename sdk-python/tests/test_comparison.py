"""The programs whose lines `bench/sdk-lines` counts do what they should."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any, Dict

import pytest

from server import REPOSITORY, TestServer

EXPECTED: Dict[str, str] = {
    "run": r"hello\n\n",
    "stream": r"(compiling\n|warning\n){2}exit code 3\n",
    "files": r"hello\n",
    "upload": r"passed\n\n",
    "port": r".*Directory listing for /.*",
    "pause": r"kept\n",
    "fork": r"fork 0\n\nfork 1\n\nfork 2\n\nfork 3\n\nfork 4\n\n",
    "restore": r"good\n",
    "terminal": r".*24 80\r\n.*",
    "merge": r"written by the writer written by the editor\n",
}


def load_programs() -> Any:
    path = REPOSITORY / "bench" / "harness" / "sdk_lines" / "workspace.py"
    spec = importlib.util.spec_from_file_location("sdk_lines_workspace", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAMS = load_programs()


def test_all_programs_are_expected() -> None:
    functions = inspect.getmembers(PROGRAMS, inspect.isfunction)
    assert {name for name, _ in functions} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_program(server: TestServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "run.sh").write_text("echo passed\n")
    program = getattr(PROGRAMS, name)
    program(*[tmp_path] * len(inspect.signature(program).parameters))
    printed = capsys.readouterr().out
    assert re.fullmatch(EXPECTED[name], printed, re.S), printed
