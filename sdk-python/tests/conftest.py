from __future__ import annotations

from typing import Iterator, List

import pytest

from server import TestServer
from workspace_sdk.sync import Sandbox, WorkspaceClient


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Puts the test that needs all others at the end. Removes it if only some tests run."""
    last = [item for item in items if item.name == "test_every_operation_was_called_by_a_test"]
    others = [item for item in items if item not in last]
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    items[:] = [*others, *last] if is_whole else others


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


@pytest.fixture(scope="session")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Directory with what mypy knows about the SDK and its dependencies."""
    return str(tmp_path_factory.mktemp("mypy"))
