"""Events of the server are told apart by their types."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any, Dict, List

from test_operations import DESCRIPTION
from workspace_sdk.server_events import DATA_TYPES, decode_event
from workspace_sdk.sync import Sandbox, WorkspaceClient

# An expression for the details of each class. Type checkers accept it only if the class has the attributes.
DETAILS: Dict[str, str] = {
    "AgentEventData": "event.data.state or ''",
    "ChangesRevertedData": "event.data.reverted.paths[0]",
    "CompletionEventData": "event.data.completion_id",
    "CompletionFailedData": "event.data.reason",
    "CompletionMergedData": "str((event.data.sequence or 0) + 1)",
    "PolicyEventData": "str(event.data.policy_version + 1)",
    "ProjectAdvancedData": "event.data.snapshot_id",
    "ProjectEventData": "event.data.project",
    "RebaseConflictedData": "event.data.conflicts[0].path",
    "ReviewDecisionData": "event.data.by + event.data.choice",
    "ReviewEscalatedData": "event.data.escalated_to",
    "ReviewEventData": "event.data.review_id",
    "SandboxEndedData": "event.data.reason or ''",
    "SandboxEventData": "event.data.expires_at.isoformat()",
    "SandboxRestoredData": "event.data.snapshot_id",
    "SnapshotEventData": "event.data.snapshot_id",
    "TemplateEventData": "event.data.template",
}


def program(types: List[str]) -> str:
    """Returns a program that handles these types of events, and no other."""
    cases = "".join(
        f"    if event.type == {name!r}:\n        return {DETAILS[DATA_TYPES[name][0].__name__]}\n" for name in types
    )
    return (
        "from typing import Union\n"
        "from typing_extensions import assert_never\n"
        "from workspace_sdk import EventGapMessage, WorkspaceClient\n"
        "from workspace_sdk.server_events import ServerEvent\n"
        "async def use(client: WorkspaceClient) -> None:\n"
        "    async for event in client.events.follow():\n"
        "        print(describe(event))\n"
        "def describe(event: Union[ServerEvent, EventGapMessage]) -> str:\n"
        "    if event.type == 'gap':\n        return str(event.to)\n"
        f"{cases}"
        "    assert_never(event)\n"
    )


def test_type_checkers_know_all_types_and_their_details(tmp_path: Path, mypy_cache: str) -> None:
    types = list(DATA_TYPES)
    (tmp_path / "complete.py").write_text(program(types))
    (tmp_path / "incomplete.py").write_text(program(types[1:]))
    options = ["--strict", "--config-file=", "--no-error-summary", "--cache-dir", mypy_cache]
    command = [sys.executable, "-m", "mypy", *options, "complete.py", "incomplete.py"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    (error,) = done.stdout.splitlines()
    assert error.startswith("incomplete.py:"), error
    assert "'sandbox.starting'" in error


def test_the_types_are_those_of_the_description() -> None:
    described = DESCRIPTION["components"]["schemas"]["EventType"]["enum"]
    assert sorted(described) == sorted(DATA_TYPES)


def test_unknown_types_keep_all_details() -> None:
    event: Any = decode_event(
        {"id": 1, "type": "new.type", "time": "2026-01-01T00:00:00Z", "data": {"project": "p", "sequence": 3}}
    )
    assert (event.type, event.data.project, event.data.sequence) == ("new.type", "p", 3)


def test_events_have_the_details_of_their_types(client: WorkspaceClient, box: Sandbox) -> None:
    box.restore(box.commit().snapshot.id)
    seen = set()
    for event in client.events.follow(sandbox=box.id):
        seen.add(event.type)
        if event.type == "sandbox.restored":
            assert event.data.state == "running"
            assert event.data.created_at <= event.time
            break
    created = {f"sandbox.{state}" for state in ("starting", "running", "created", "restored")}
    assert seen >= created | {"agent.connected", "snapshot.created"}
    # Events of other tests, too.
    after = 0
    while True:
        page = client.events.list(after=after, limit=1000)
        for event in page.items:
            hints = typing.get_type_hints(DATA_TYPES[event.type][0])
            for field in dataclasses.fields(event.data):
                is_optional = type(None) in typing.get_args(hints[field.name])
                assert is_optional or getattr(event.data, field.name) is not None, event
        if not page.more:
            break
        after = page.next
