from __future__ import annotations

from typing import Iterator

import pytest

from server import TestServer
from workspace_sdk.sync import Sandbox, WorkspaceClient


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    running = TestServer()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the variables of the environment, from which clients without arguments are configured."""
    monkeypatch.delenv("WORKSPACE_DEBUG", raising=False)
    if "server" in request.fixturenames:
        running = request.getfixturevalue("server")
        monkeypatch.setenv("WORKSPACE_API_URL", running.url)
        monkeypatch.setenv("WORKSPACE_API_KEY", running.key)


@pytest.fixture
def client(server: TestServer) -> Iterator[WorkspaceClient]:
    with WorkspaceClient(server.url, server.key) as made:
        yield made


@pytest.fixture(scope="session")
def box(server: TestServer) -> Iterator[Sandbox]:
    """Sandbox of the tests that leave no trace in it."""
    with WorkspaceClient(server.url, server.key) as made:
        with made.sandbox.create(template="base", timeout_seconds=900) as sandbox:
            yield sandbox
