"""The scenarios that all SDKs execute, by the asynchronous and by the synchronous SDK."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, List

import pytest

import workspace_sdk
import workspace_sdk.sync
from server import REPOSITORY, TestServer
from workspace_sdk.errors import WorkspaceError

SCENARIOS = json.loads((REPOSITORY / "sdk-scenarios" / "scenarios.json").read_text(encoding="utf-8"))["scenarios"]


def snake_case(name: str) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return {"from": "from_", "class": "class_", "import": "import_"}.get(name, name)


async def finished(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def attribute(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, value.get(snake_case(name)))
    if isinstance(value, (list, tuple)):
        return value[int(name)]
    return getattr(value, snake_case(name), None)


class Scenario:
    """Execution of a scenario."""

    def __init__(self, client: Any) -> None:
        self.saved: Dict[str, Any] = {"client": client}
        self.created: List[Any] = []

    def resolve(self, value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$"}:
                return self.lookup(value["$"])
            return {name: self.resolve(item) for name, item in value.items()}
        return [self.resolve(item) for item in value] if isinstance(value, list) else value

    def lookup(self, path: str) -> Any:
        first, *rest = path.lstrip("$").split(".")
        value = self.saved[first]
        for name in rest:
            value = attribute(value, name)
        return value

    async def step(self, step: Dict[str, Any]) -> None:
        error = None
        result = None
        try:
            result = await self.call(step)
        except WorkspaceError as raised:
            if "error" not in step:
                raise
            error = raised
        if "error" in step:
            assert error is not None, f"no error in {step}"
            expected = dict(self.resolve(step["error"]))
            if "class" in expected:
                assert type(error).__name__ == expected.pop("class"), repr(error)
            self.match(error, expected, "error")
            return
        if "save" in step:
            self.saved[step["save"]] = result
        if "expect" in step:
            self.match(result, self.resolve(step["expect"]), step["call"])

    async def call(self, step: Dict[str, Any]) -> Any:
        target = self.lookup(step["call"])
        if not callable(target):
            return await collect(target) if step.get("collect") else target
        arguments = self.resolve(step.get("args", []))
        options = {snake_case(name): value for name, value in self.resolve(step.get("options", {})).items()}
        if "timeout" in options:
            options["timeout"] /= 1000
        params = {snake_case(name): value for name, value in self.resolve(step.get("params", {})).items()}
        result = await finished(target(*arguments, **params, **options))
        self.remember(result)
        return await collect(result) if step.get("collect") else result

    def remember(self, result: Any) -> None:
        forks = getattr(result, "sandboxes", None)
        made = forks if isinstance(forks, list) else [result]
        self.created += [item for item in made if hasattr(item, "create_token")]

    def match(self, actual: Any, expected: Any, where: str) -> None:
        if isinstance(expected, dict):
            if "$regex" in expected:
                assert re.search(expected["$regex"], str(actual)), f"{where}: {actual!r}"
            elif "$contains" in expected:
                self.match_contains(actual, expected["$contains"], where)
            elif "$length" in expected:
                assert len(actual) == expected["$length"], f"{where}: {actual!r}"
            elif "$present" in expected:
                assert (actual is not None) == expected["$present"], f"{where}: {actual!r}"
            else:
                for name, value in expected.items():
                    self.match(attribute(actual, name), value, f"{where}.{name}")
        elif isinstance(expected, list):
            assert len(actual) == len(expected), f"{where}: {actual!r}"
            for number, value in enumerate(expected):
                self.match(actual[number], value, f"{where}[{number}]")
        else:
            if isinstance(actual, datetime):
                actual = actual.isoformat()
            if isinstance(expected, str) and isinstance(actual, bytes):
                actual = actual.decode()
            assert actual == expected, f"{where}: {actual!r}"

    def match_contains(self, actual: Any, expected: Any, where: str) -> None:
        if isinstance(actual, str):
            assert expected in actual, f"{where}: {actual!r}"
            return None
        for item in actual or []:
            try:
                return self.match(item, expected, where)
            except AssertionError:
                continue
        raise AssertionError(f"{where}: {actual!r} does not contain {expected!r}")

    async def clean_up(self) -> None:
        for sandbox in self.created:
            try:
                await finished(sandbox.delete())
            except WorkspaceError:
                pass


async def collect(result: Any) -> Dict[str, Any]:
    items = []
    if hasattr(result, "__aiter__"):
        async for item in result:
            items.append(item)
    else:
        items += list(result)
    texts: Dict[str, str] = {"stdout": "", "stderr": ""}
    types: List[str] = []
    everything = b""
    for item in items:
        kind = getattr(item, "type", None)
        if kind in texts:
            texts[kind] += item.data
        if isinstance(item, str):
            everything += item.encode()
        elif isinstance(item, bytes):
            everything += item
        elif isinstance(getattr(item, "data", None), str):
            everything += item.data.encode()
        if kind is not None and types[-1:] != [kind]:
            types.append(kind)
    last = items[-1] if items else None
    text = everything.decode("utf-8", "replace")
    return {**texts, "text": text, "bytes": everything, "types": types, "last": last, "items": items}


@pytest.mark.parametrize("sdk", ["async", "sync"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario["name"]))
def test_scenario(server: TestServer, scenario: Dict[str, Any], sdk: str) -> None:
    module: Any = workspace_sdk if sdk == "async" else workspace_sdk.sync

    # Names and keys have to differ between the two runs.
    steps = json.loads(json.dumps(scenario["steps"]).replace("scenario-", f"scenario-{sdk}-"))

    async def execute() -> None:
        client = module.WorkspaceClient(server.url, server.key)
        run = Scenario(client)
        try:
            for step in steps:
                await run.step(step)
        finally:
            await run.clean_up()
            await finished(client.close())

    asyncio.run(execute())


def test_tools_are_those_of_all_sdks() -> None:
    shared = (REPOSITORY / "sdk-scenarios" / "tools.json").read_bytes()
    assert Path(workspace_sdk.__file__).with_name("tools.json").read_bytes() == shared
