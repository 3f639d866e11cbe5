"""Streams and requests over connections that break."""

from __future__ import annotations

import asyncio
from typing import Any, List

import pytest

import workspace_sdk
from proxy import UNLIMITED, Fault, Proxy
from server import TestServer
from workspace_sdk import OutputEvent
from workspace_sdk.errors import ServerUnreachableError, WorkspaceError
from workspace_sdk.sync import Sandbox, WorkspaceClient
from workspace_sdk.sync.notes import NoteService
from workspace_sdk.sync.process import ProcessService

COMMAND = "printf 'first \\303\\244\\n'; printf 'err\\n' >&2; printf 'last \\342\\202'; printf '\\254\\377'"
STDOUT = b"first \xc3\xa4\nlast \xe2\x82\xac\xff"
STDERR = b"err\n"
NO_KEEPALIVE = {"connection": "close"}


def impatient(url: str, key: str, **options: Any) -> WorkspaceClient:
    return WorkspaceClient(url, key, retry_delay=0.001, **options)


def outputs(events: List[Any]) -> List[bytes]:
    made = [event for event in events if isinstance(event, OutputEvent)]
    return [b"".join(event.bytes for event in made if event.type == stream) for stream in ("stdout", "stderr")]


def process_of(client: WorkspaceClient, box: Sandbox) -> ProcessService:
    """Returns the commands of the sandbox, without a request."""
    return ProcessService(client._transport, box.id)


def response_size(server: TestServer, box: Sandbox, command_id: str) -> int:
    """Returns the number of bytes that the server sends for a stream from its start."""
    with Proxy(server.url) as proxy:
        with impatient(proxy.url, server.key, headers=NO_KEEPALIVE) as client:
            list(process_of(client, box).output(command_id))
    return proxy.passed[0]


@pytest.mark.parametrize("fault", ["reset", "truncated", "delayed"])
def test_a_stream_with_a_fault_at_any_byte_has_neither_gaps_nor_repeats(
    server: TestServer, box: Sandbox, fault: Fault
) -> None:
    command_id = box.process.start(COMMAND).wait().command_id
    size = response_size(server, box, command_id)
    assert size > 500
    limits: List[int] = []
    with Proxy(server.url, lambda _: limits.pop() if limits else UNLIMITED, fault) as proxy:
        with impatient(proxy.url, server.key, headers=NO_KEEPALIVE) as client:
            process = process_of(client, box)
            for offset in range(1, size):
                # Only the first connection has the fault.
                limits.append(offset)
                events = list(process.output(command_id))
                assert outputs(events) == [STDOUT, STDERR], offset
                assert events[-1].type == "exit"
                text = "".join(event.data for event in events if event.type == "stdout")
                assert text == STDOUT.decode("utf-8", "replace"), offset
        assert proxy.connections >= (size - 1 if fault == "delayed" else 2 * (size - 200))


def test_a_command_is_started_once_although_its_first_responses_are_lost(server: TestServer, box: Sandbox) -> None:
    for limit in (0, 1, 200, 560):
        with Proxy(server.url, lambda number, at=limit: at if number < 2 else UNLIMITED) as proxy:
            with impatient(proxy.url, server.key) as client:
                service = process_of(client, box)
                tag = f"once-{limit}"
                assert outputs(list(service.run_stream(COMMAND, tag=tag))) == [STDOUT, STDERR]
                assert service.run(COMMAND, tag=tag + "-run").stdout_bytes == STDOUT
        assert len(box.process.list(tag=tag)) == 1
        assert len(box.process.list(tag=tag + "-run")) == 1


def test_a_stream_in_small_pieces_is_complete(server: TestServer, box: Sandbox) -> None:
    with Proxy(server.url, piece=1) as proxy, impatient(proxy.url, server.key) as client:
        service = process_of(client, box)
        assert outputs(list(service.run_stream(COMMAND))) == [STDOUT, STDERR]


def test_a_long_stream_survives_cuts(server: TestServer, box: Sandbox) -> None:
    # Each connection passes a little more than one event of 64 KiB.
    with Proxy(server.url, lambda _: 200_000) as proxy, impatient(proxy.url, server.key) as client:
        service = process_of(client, box)
        events = list(service.run_stream("seq 1 300000", timeout=0))
        assert proxy.connections > 5
    expected = "".join(f"{number}\n" for number in range(1, 300001)).encode()
    assert outputs(events)[0] == expected


def test_a_silent_connection_is_made_again(server: TestServer, box: Sandbox) -> None:
    # The first connection stops passing bytes; the proxy keeps it open.
    with Proxy(server.url) as proxy, impatient(proxy.url, server.key, idle_timeout=0.3) as client:
        service = process_of(client, box)
        result = service.run("sleep 1; echo done")
        assert result.stdout == "done\n"
        events = list(service.run_stream("echo one; sleep 1; echo two"))
        assert outputs(events)[0] == b"one\ntwo\n"
        assert proxy.connections > 3


def test_a_terminal_continues_after_its_connection_broke(server: TestServer, box: Sandbox) -> None:
    with Proxy(server.url) as proxy, impatient(proxy.url, server.key) as client:
        pty = client.sandbox.get(box.id).pty.create(command="stty -echo; echo ready; read a; echo got $a; exit 5")
        text, is_cut = "", False
        for event in pty:
            if event.type == "output":
                text += event.data
            if "ready" in text and not is_cut:
                is_cut = True
                proxy.cut_all()
                pty.write("input\n")
        assert text.replace("\r", "") == "ready\ngot input\n"
        assert pty.wait() == 5


def test_a_request_is_not_repeated_if_that_may_do_harm(server: TestServer, box: Sandbox) -> None:
    before = len(box.notes.list().items)
    with Proxy(server.url, lambda _: 1) as proxy, impatient(proxy.url, server.key) as client:
        with pytest.raises(ServerUnreachableError) as raised:
            NoteService(client._transport, box.id).create("once")
        assert proxy.connections == 1
    assert raised.value.code == 0
    assert raised.value.retryable
    assert len(box.notes.list().items) <= before + 1


def test_a_deletion_whose_response_is_lost_succeeds(server: TestServer, client: WorkspaceClient) -> None:
    sandbox = client.sandbox.create(template="base")
    with Proxy(server.url, lambda number: 0 if number == 0 else UNLIMITED) as proxy:
        with impatient(proxy.url, server.key) as other:
            assert other.sandbox.delete(sandbox.id) is None
        assert proxy.connections == 2


def test_a_sandbox_is_created_once_although_the_response_is_lost(server: TestServer, client: WorkspaceClient) -> None:
    with Proxy(server.url, lambda number: 20 if number == 0 else UNLIMITED) as proxy:
        with impatient(proxy.url, server.key) as other:
            with other.sandbox.create(template="base", name="created-once"):
                assert client.sandbox.list(name_prefix="created-once").total == 1


def test_a_server_that_cannot_be_reached_is_told_from_a_sandbox_that_is_gone(client: WorkspaceClient) -> None:
    with pytest.raises(workspace_sdk.errors.SandboxGoneError):
        client.sandbox.get("sbx-none")
    with impatient("http://127.0.0.1:1", "key-of-nothing") as other:
        with pytest.raises(ServerUnreachableError, match="cannot connect"):
            other.sandbox.get("sbx-none")


def test_a_cancelled_call_kills_its_command(server: TestServer, box: Sandbox) -> None:
    async def cancel() -> str:
        async with workspace_sdk.WorkspaceClient() as client:
            service = (await client.sandbox.get(box.id)).process
            started = asyncio.Event()
            run = service.run(
                "echo started; sleep 100", kill_on_cancel=True, on_stdout=lambda _: started.set(), tag="c"
            )
            call = asyncio.ensure_future(run)
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            command = (await service.list(tag="c"))[0]
            return (await service.output(command.command_id).wait()).command_id

    command_id = asyncio.run(cancel())
    assert box.process.get(command_id).exit_code == 137


def test_a_stream_that_is_left_kills_its_command_if_asked(box: Sandbox) -> None:
    for kill in (True, False):
        with box.process.run_stream("echo started; sleep 0.5", kill_on_cancel=kill) as stream:
            assert next(stream).type == "stdout"
        assert stream.command_id is not None
        assert box.process.output(stream.command_id).wait().exit_code == (137 if kill else 0)


def test_many_calls_run_at_once_on_one_client(server: TestServer, box: Sandbox) -> None:
    async def run_all() -> List[int]:
        async with workspace_sdk.WorkspaceClient() as client:
            sandbox = await client.sandbox.get(box.id)
            calls = (sandbox.files.exists("/workspace") for _ in range(200))
            return [int(found) for found in await asyncio.gather(*calls)]

    assert sum(asyncio.run(run_all())) == 200


def test_an_error_of_a_proxy_is_no_error_of_the_api(server: TestServer) -> None:
    with WorkspaceClient("http://127.0.0.1:1", "some-key", retries=0) as client:
        with pytest.raises(WorkspaceError) as raised:
            client.system.health()
    assert raised.value.name == "SERVER_UNREACHABLE"
