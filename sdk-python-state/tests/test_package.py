"""The package: types, `workspace_sdk.state`, the README and the example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import workspace_sdk.state
import workspace_state
from programs import run
from workspace_sdk.errors import WorkspaceError

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def test_the_stub_describes_the_native_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "workspace_state._state"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def test_the_sdk_has_the_same_names() -> None:
    assert set(workspace_sdk.state.__all__) == set(workspace_state.__all__)
    for name in workspace_state.__all__:
        assert getattr(workspace_sdk.state, name) is getattr(workspace_state, name)
        assert getattr(workspace_state, name).__module__ in ("workspace_state", "workspace_state.errors")


def test_errors_are_those_of_the_sdk() -> None:
    for name in workspace_state.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(workspace_state, name), WorkspaceError)


def test_classes_and_methods_have_documentation() -> None:
    for name in workspace_state.__all__:
        cls = getattr(workspace_state, name)
        for member in (cls, *(value for key, value in vars(cls).items() if not key.startswith("_"))):
            assert not callable(member) or member.__doc__, (name, member)


def test_the_sdk_says_what_is_missing() -> None:
    message = run(
        "import sys\nsys.modules['workspace_state'] = None\n"
        "try:\n    import workspace_sdk.state\nexcept ImportError as error:\n    print(error)"
    )
    assert message.strip().endswith("pip install elevo-workspace-state")


def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / "sdk-python-state" / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(tmp_path)
    assert run(program) == "modified answer\n"
    assert (tmp_path / "answer-directory" / "answer").read_text() == "42\n"


def test_the_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / "docs" / "python-state.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(programs) >= 3
    monkeypatch.chdir(tmp_path)
    run("".join(programs))


def test_the_search_repairs_the_sample() -> None:
    command = [sys.executable, "-W", "error", str(REPOSITORY / "examples" / "python" / "mcts.py")]
    outputs = [subprocess.run(command, capture_output=True, text=True, timeout=50) for _ in range(2)]
    for done in outputs:
        assert done.returncode == 0, done.stderr
    assert outputs[0].stdout == outputs[1].stdout, "the same seed gives the same search"
    last = outputs[0].stdout.splitlines()[-1]
    for fix in ["subtract in sub", "take the larger in max", "begin with one in fact"]:
        assert fix in last
    assert last.endswith("(1.00)")
