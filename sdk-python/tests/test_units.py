"""Parts that need no server."""

from __future__ import annotations

import dataclasses
import http.server
import json
import logging
import os
import pickle
import tarfile
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from workspace_sdk._archive import ArchiveReader, ArchiveWriter
from workspace_sdk._config import normalise_url
from workspace_sdk._model import format_time, parse_time
from workspace_sdk._output import OutputCollector, Utf8Decoder
from workspace_sdk._request import backoff, encode_query, file_path, sandbox_path, segment
from workspace_sdk._sse import COMMENT, EVENT_MAX, SseParser
from workspace_sdk.errors import (
    ConfigurationError,
    RateLimitedError,
    RequestTimeoutError,
    SandboxGoneError,
    SandboxNotFoundError,
    ServerError,
    UnexpectedResponseError,
    WorkspaceError,
    error_of_fields,
)
from workspace_sdk.results import (
    BuildCachedEvent,
    BuildDoneEvent,
    BuildOutputEvent,
    BuildStepEvent,
    ExitEvent,
    FileChangedEvent,
    FileRenamedEvent,
    OutputEvent,
    WatchDroppedEvent,
    WatchEndedEvent,
    decode_build_event,
    decode_watch_event,
)
from workspace_sdk.sync import WorkspaceClient
from workspace_sdk.types import CreateSandboxParams, NewKey, Resources, Review, ReviewRegionLines, Template, TokenInfo


def test_events_do_not_depend_on_the_size_of_received_pieces() -> None:
    text = (
        b': cmd-1\n\nevent: stdout\nid: 3\ndata: {"a":\ndata: 1}\r\n\n: waiting\n\nid: 4\ndata: \xc3\xa4\n\ndata: half'
    )
    expected = [
        (COMMENT, "cmd-1", None),
        ("stdout", '{"a":\n1}', "3"),
        (COMMENT, "waiting", None),
        ("message", "ä", "4"),
    ]
    for size in range(1, len(text) + 1):
        parser = SseParser()
        events = [event for start in range(0, len(text), size) for event in parser.feed(text[start : start + size])]
        assert [(event.event, event.data, event.id) for event in events] == expected, size


def test_events_without_an_end_are_refused() -> None:
    parser = SseParser()
    with pytest.raises(UnexpectedResponseError):
        for _ in range(2 + EVENT_MAX // (1 << 20)):
            parser.feed(b"x" * (1 << 20))


def test_characters_are_complete_before_they_are_shown() -> None:
    data = "aä€😀".encode() + b"\xff\xe2\x82"
    for size in range(1, len(data) + 1):
        decoder = Utf8Decoder()
        text = "".join(decoder.decode(data[start : start + size]) for start in range(0, len(data), size))
        assert text == "aä€😀\ufffd"
        assert decoder.finish() == "\ufffd"


def test_events_of_a_watch_have_the_fields_of_their_type() -> None:
    decoded = [
        decode_watch_event({"type": "modified", "path": "a", "directory": False}),
        decode_watch_event({"type": "renamed", "path": "b", "from": "a", "directory": True}),
        decode_watch_event({"type": "dropped", "path": "sub"}),
        decode_watch_event({"type": "ended", "reason": "removed"}),
        decode_watch_event({"type": "of a newer server"}),
    ]
    assert decoded == [
        FileChangedEvent("modified", "a", directory=False),
        FileRenamedEvent("b", from_="a", directory=True),
        WatchDroppedEvent("sub"),
        WatchEndedEvent("removed"),
        None,
    ]
    assert [event.type for event in decoded if event] == ["modified", "renamed", "dropped", "ended"]


def test_events_of_a_build_have_the_fields_of_their_type() -> None:
    template = {"name": "t@1", "description": "", "tags": [], "present": True}
    decoded = [
        decode_build_event({"type": "step", "step": 1, "steps": 2, "text": "run true"}),
        decode_build_event({"type": "cached", "step": 1}),
        decode_build_event({"type": "output", "stream": "stderr", "data": "ä"}),
        decode_build_event({"type": "output", "stream": "stdout", "dataBase64": "/w=="}),
        decode_build_event({"type": "done", "steps": 2, "cached": 1, "created": False, "template": template}),
    ]
    assert decoded == [
        BuildStepEvent(1, 2, "run true"),
        BuildCachedEvent(1),
        BuildOutputEvent("stderr", "ä", "ä".encode()),
        BuildOutputEvent("stdout", "\ufffd", b"\xff"),
        BuildDoneEvent(2, 1, False, Template.decode(template)),
    ]
    with pytest.raises(UnexpectedResponseError):
        decode_build_event({"type": "of a newer server"})


def test_a_result_is_cut_between_characters() -> None:
    collector = OutputCollector(4)
    for data in ("aä".encode(), "€".encode(), b"later"):
        collector.add(OutputEvent("stdout", "cmd-1", "", data, 0, 0))
    result = collector.result(ExitEvent("cmd-1", 0, False, 0))
    assert (result.stdout, result.truncated) == ("aä", True)


def test_paths_stay_below_their_route() -> None:
    assert file_path("/workspace/../../keys/.") == "workspace/%2E%2E/%2E%2E/keys/%2E"
    assert segment("..") == "%2E%2E"
    assert segment("a/b c?") == "a%2Fb%20c%3F"
    assert file_path("ä/\udcff") == "%C3%A4/%FF"
    assert [sandbox_path(path) for path in ("", ".", "a/b", "/etc")] == [
        "/workspace",
        "/workspace",
        "/workspace/a/b",
        "/etc",
    ]
    assert encode_query({"a": True, "b": None, "c": ["x=1", "y&"], "d": 0}) == "a=true&c=x%3D1&c=y%26&d=0"


def test_times_of_all_precisions_are_parsed() -> None:
    expected = datetime(2026, 1, 2, 3, 4, 5, 120000, tzinfo=timezone.utc)
    assert parse_time("2026-01-02T03:04:05.12Z") == expected
    assert parse_time("2026-01-02T03:04:05.120000999Z") == expected
    assert parse_time("2026-01-02T05:04:05.12+02:00") == expected
    assert format_time(expected) == "2026-01-02T03:04:05.120000Z"
    with pytest.raises(UnexpectedResponseError):
        parse_time("yesterday")


def test_types_are_converted_both_ways() -> None:
    params = CreateSandboxParams(template="base", timeout_seconds=5, resources=Resources(cpu="1"), envs={"A": "b"})
    encoded = {"template": "base", "timeoutSeconds": 5, "resources": {"cpu": "1"}, "envs": {"A": "b"}}
    assert params.encode() == encoded
    assert CreateSandboxParams.decode({**encoded, "newField": 1}) == params
    with pytest.raises(UnexpectedResponseError, match="template"):
        CreateSandboxParams.decode({})
    token = TokenInfo.decode({"sandboxId": "sbx-1", "rights": ["process"], "expiresAt": "2026-01-01T00:00:00Z"})
    assert token.expires_at.year == 2026
    region = {"kind": "lines", **{side: {"start": 1, "end": 2} for side in ("base", "ours", "theirs")}}
    assert ReviewRegionLines.decode(region).base.end == 2
    fields = dict.fromkeys(("agent", "class", "id", "path", "project"), "x")
    times = {"createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z"}
    assert Review.decode({**fields, **times, "state": "open"}).class_ == "x"


def test_types_are_dataclasses() -> None:
    resources = Resources(cpu="1")
    assert [field.name for field in dataclasses.fields(Resources)] == ["cpu", "disk", "memory", "processes"]
    assert dataclasses.replace(resources, cpu="2") == Resources(cpu="2")
    assert dataclasses.asdict(CreateSandboxParams(template="base", resources=resources))["resources"]["cpu"] == "1"
    assert NewKey.__match_args__[0] == dataclasses.fields(NewKey)[0].name
    assert pickle.loads(pickle.dumps(resources)) == resources


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(NewKey(id="key-1", key="secret"))
    assert "secret" not in repr(CreateSandboxParams(template="base", envs={"TOKEN": "secret"}))
    client = WorkspaceClient("http://127.0.0.1:1", "secret-key")
    assert "secret" not in repr(client) + repr(client.config)


def test_errors_have_a_class_for_each_kind() -> None:
    fields = {"code": 2001, "name": "SANDBOX_NOT_FOUND", "message": "gone", "requestId": "req-1", "details": {"a": 1}}
    error = error_of_fields(fields, 404)
    assert type(error) is SandboxNotFoundError
    assert isinstance(error, SandboxGoneError)
    assert (error.code, error.request_id, error.details, error.retryable) == (2001, "req-1", {"a": 1}, False)
    assert str(error) == "gone (SANDBOX_NOT_FOUND, req-1)"
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.details, str(copied)) == (type(error), error.details, str(error))
    assert type(error_of_fields({"code": 9001, "name": "INTERNAL_ERROR"}, 500)) is ServerError
    assert type(error_of_fields({"code": 9999, "name": "OF_THE_FUTURE"}, 500)) is ServerError


def test_the_configuration_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert normalise_url("https://example.org/base/api/v1/") == "https://example.org/base"
    for url in ("example.org", "ftp://example.org", "http://", "http://user@example.org", "http://h/?a=1"):
        with pytest.raises(ConfigurationError):
            normalise_url(url)
    monkeypatch.delenv("WORKSPACE_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="WORKSPACE_API_KEY"):
        WorkspaceClient()
    with pytest.raises(ConfigurationError, match="timeout"):
        WorkspaceClient(api_key="some-key", timeout=-1)
    monkeypatch.setenv("WORKSPACE_API_KEY", "key-of-the-environment")
    monkeypatch.setenv("WORKSPACE_API_URL", "http://example.org/api/v1")
    assert WorkspaceClient().config.api_url == "http://example.org"


def test_delays_grow_with_jitter() -> None:
    for retry in range(8):
        delay = backoff(retry, 1.0, 2.0, 30.0)
        assert min(2**retry, 30) / 2 <= delay <= min(2**retry, 30)


@pytest.mark.parametrize("on_other_disk", [False, True])
def test_archives_keep_directories_as_they_are(tmp_path: Path, on_other_disk: bool) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "program").write_bytes(b"#!/bin/sh\n" * 100_000)
    (source / "sub" / "program").chmod(0o755)
    (source / "a").write_text("a")
    os.link(source / "a", source / "hard")
    os.symlink("sub/program", source / "link")
    if on_other_disk:
        target.mkdir()
        (target / "a").write_text("old")
        (target / "other").write_text("stays")
    pieces: List[bytes] = []
    reader = ArchiveReader(source, None)
    while True:
        piece = reader.read()
        if piece is None:
            break
        pieces.append(piece)
    writer = ArchiveWriter(target, None)
    for piece in pieces:
        writer.write(piece)
    progress = writer.finish()
    assert (progress.files, progress.bytes) == (3, 1_000_002)
    assert (target / "sub" / "program").read_bytes() == (source / "sub" / "program").read_bytes()
    assert (target / "sub" / "program").stat().st_mode & 0o777 == 0o755
    assert (target / "sub" / "empty").is_dir()
    assert os.readlink(target / "link") == "sub/program"
    assert (target / "hard").read_text() == (target / "a").read_text() == "a"
    assert (target / "other").exists() == on_other_disk


@pytest.mark.parametrize("name", ["../evil", "/evil", "link/evil"])
def test_archives_write_nothing_outside_the_directory(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as made:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        made.addfile(link)
        made.addfile(tarfile.TarInfo(name))
    writer = ArchiveWriter(tmp_path / "target", None)
    writer.write(archive.read_bytes())
    with pytest.raises(ValueError, match="archive has a member"):
        writer.finish()
    assert not (tmp_path / "evil").exists()


class Answers:
    """HTTP server that sends prepared responses, one after the other."""

    def __init__(self, answers: List[Tuple[int, Dict[str, str], bytes]]) -> None:
        seen: List[Dict[str, Any]] = []
        self.seen = seen

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
                status, headers, content = answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = do_PUT = answer

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def api_error(name: str, code: int) -> bytes:
    error = {"code": code, "name": name, "message": name.lower(), "details": {}, "requestId": "req-1"}
    return json.dumps({"error": error}).encode()


@pytest.fixture
def made() -> Iterator[List[WorkspaceClient]]:
    clients: List[WorkspaceClient] = []
    yield clients
    for client in clients:
        client.close()


def client_of(url: str, clients: List[WorkspaceClient], **options: Any) -> WorkspaceClient:
    client = WorkspaceClient(url, "some-key", **{"retry_delay": 0.001, **options})
    clients.append(client)
    return client


HEALTHY = (200, {"content-type": "application/json"}, b'{"status":"ok","version":"1"}')


def test_refused_requests_are_sent_again(made: List[WorkspaceClient]) -> None:
    limited = (429, {"retry-after": "0"}, api_error("RATE_LIMITED", 9002))
    with Answers([limited, (502, {}, b"<html>"), HEALTHY]) as answers:
        assert client_of(answers.url, made).system.health().status == "ok"
        assert len(answers.seen) == 3


def test_a_long_wait_ends_the_call(made: List[WorkspaceClient]) -> None:
    with Answers([(429, {"retry-after": "600"}, api_error("RATE_LIMITED", 9002))]) as answers:
        with pytest.raises(RateLimitedError) as raised:
            client_of(answers.url, made, timeout=5.0).system.health()
        assert raised.value.retry_after == 600
        assert raised.value.retryable


def test_limits_are_no_reason_for_a_retry(made: List[WorkspaceClient]) -> None:
    with Answers([(429, {"retry-after": "5"}, api_error("SANDBOX_LIMIT_EXCEEDED", 2003))]) as answers:
        with pytest.raises(WorkspaceError, match="sandbox_limit"):
            client_of(answers.url, made).sandbox.create(template="base")


def test_a_creation_keeps_its_idempotency_key(made: List[WorkspaceClient]) -> None:
    final = (404, {}, api_error("TEMPLATE_NOT_FOUND", 2002))
    with Answers([(503, {}, b""), final]) as answers:
        with pytest.raises(WorkspaceError):
            client_of(answers.url, made).sandbox.create(template="none")
        keys = {seen["headers"]["idempotency-key"] for seen in answers.seen}
        assert len(answers.seen) == 2
        assert len(keys) == 1


def test_other_programs_are_recognised(made: List[WorkspaceClient]) -> None:
    for answer in ((200, {}, b"<html>"), (404, {}, b"<html>"), (302, {"location": "/login"}, b""), (200, {}, b"[]")):
        with Answers([answer]) as answers, pytest.raises(UnexpectedResponseError):
            client_of(answers.url, made).system.health()


def test_a_call_ends_at_its_timeout(made: List[WorkspaceClient]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RequestTimeoutError):
            client_of(url, made).system.health(timeout=0.05)


def test_the_debug_log_has_no_secrets(made: List[WorkspaceClient], caplog: pytest.LogCaptureFixture) -> None:
    with Answers([HEALTHY]) as answers, caplog.at_level(logging.DEBUG, logger="workspace_sdk"):
        client_of(answers.url, made).system.health()
    text = " ".join(record.getMessage() for record in caplog.records if record.name == "workspace_sdk")
    assert "GET /health status=200" in text
    assert "some-key" not in text
