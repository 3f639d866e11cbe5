"""Commands in a sandbox."""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, Sequence, Union

from ._config import ClientConfig
from ._output import (
    OUTPUT_MAX,
    OutputCollector,
    OutputTail,
    Utf8Decoder,
    command_line,
    output_bytes,
    start_failure,
)
from ._request import Deadline, Request, new_idempotency_key, segment
from ._runtime import Cancelled, beside, closing, shielded, sleep
from ._service import Service, idempotency_header
from ._sse import COMMENT, ServerSentEvent
from ._transport import Transport, is_disconnection, reconnect_delay
from .errors import (
    ConflictError,
    NotFoundError,
    RequestTimeoutError,
    ServerUnreachableError,
    UnauthorizedError,
    UnexpectedResponseError,
    WorkspaceError,
)
from .results import CommandResult, ErrorEvent, ExitEvent, GapEvent, OutputEvent, StreamEvent
from .types import Command, CommandRecord, Overflow, ProcessInfo

CommandText = Union[str, Sequence[str]]
"""Command line for `/bin/sh -c`, or a program with its arguments, which no shell reads."""

OutputCallback = Callable[[str], Any]

COMMAND_ID_PREFIX = "cmd-"
"""Start of the ids of commands; a stream begins with a comment that is the id."""

INPUT_REQUEST_MAX = 1 << 20
"""Maximum number of bytes of input in one request; the server limits the size of its body."""

STDIN_RETRY_DELAY = 0.05
"""Delay in seconds before input is sent again to a command that did not read."""


class CommandStream:
    """Events of a command. Iterate over it once.

    The command starts with the first event that is requested, or with `id`. If the connection breaks, the stream
    continues at the byte where it stopped.
    """

    def __init__(
        self,
        process: ProcessService,
        *,
        command_id: Optional[str] = None,
        body: Optional[Dict[str, Any]] = None,
        idempotency_key: Optional[str] = None,
        from_: int = 0,
        check: bool = False,
        kill_on_cancel: bool = False,
        request_timeout: Optional[float] = None,
    ) -> None:
        self._process = process
        self._command_id = command_id
        self._body = body
        self._idempotency_key = idempotency_key or new_idempotency_key()
        self._offset = from_
        self._check = check
        self._kill_on_cancel = kill_on_cancel
        self._request_timeout = request_timeout
        self._pending: List[StreamEvent] = []
        self._events = self._all_events()
        self._ended = False

    def __aiter__(self) -> CommandStream:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._pending:
            return self._pending.pop(0)
        while True:
            event = await self._events.__anext__()
            if event is not None:
                return event

    async def __aenter__(self) -> CommandStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def command_id(self) -> Optional[str]:
        """Id of the command; `None` until the server has sent it."""
        return self._command_id

    @property
    def offset(self) -> int:
        """Offset after the output that was received, from which another stream can continue."""
        return self._offset

    async def id(self) -> str:
        """Starts the command if it has not started, and returns its id."""
        while self._command_id is None:
            event = await self._events.__anext__()
            if event is not None:
                self._pending.append(event)
        return self._command_id

    async def kill(self, signal: int = 15) -> None:
        """Sends a signal to the command and its processes."""
        await self._process.kill(await self.id(), signal)

    async def write_stdin(self, data: Union[str, bytes]) -> None:
        """Writes to the stdin of the command, which must have been started with `stdin=True`."""
        await self._process.write_stdin(await self.id(), data)

    async def close_stdin(self) -> None:
        """Closes the stdin of the command."""
        await self._process.write_stdin(await self.id(), b"", close=True)

    async def wait(
        self,
        *,
        max_output_size: int = OUTPUT_MAX,
        on_stdout: Optional[OutputCallback] = None,
        on_stderr: Optional[OutputCallback] = None,
    ) -> CommandResult:
        """Reads the rest of the stream, and returns the result with the output that was read here."""
        collector = OutputCollector(max_output_size)
        callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        async for event in self:
            if isinstance(event, OutputEvent):
                collector.add(event)
                callback = callbacks[event.type]
                if callback is not None and event.data:
                    callback(event.data)
            elif isinstance(event, GapEvent):
                collector.truncated = True
            elif isinstance(event, ExitEvent):
                return collector.result(event)
            else:
                raise start_failure(event)
        raise WorkspaceError("the stream of the command was closed before the command ended", name="STREAM_CLOSED")

    async def close(self) -> None:
        """Ends the stream. The command goes on, unless `kill_on_cancel` was set."""
        await closing(self._events)

    async def _all_events(self) -> AsyncIterator[Optional[StreamEvent]]:
        """Yields events, and `None` when the id of the command has become known."""
        decoders = {"stdout": Utf8Decoder(), "stderr": Utf8Decoder()}
        tail = OutputTail()
        try:
            raw = self._raw_events()
            try:
                async for data in raw:
                    if data is None:
                        yield None
                        continue
                    for event in self._decode(data, decoders):
                        if isinstance(event, OutputEvent):
                            if self._check:
                                tail.add(event)
                        elif isinstance(event, GapEvent):
                            tail.truncated = True
                        else:
                            self._ended = True
                        yield event
                        if self._ended and self._check:
                            check_end(event, tail)
            finally:
                await closing(raw)
        except Cancelled:
            if self._kill_on_cancel and not self._ended:
                await shielded(self._kill_quietly)
            raise

    async def _kill_quietly(self) -> None:
        """Kills the command of a caller that is gone. Errors are ignored: the command may have ended."""
        try:
            if self._command_id is None:
                # The request was sent, but there is no response yet. Sent again, it gets the same command.
                events = self._process.connect(self._request())
                try:
                    async for message in events:
                        if message.event == COMMENT and message.data.startswith(COMMAND_ID_PREFIX):
                            self._command_id = message.data
                            break
                finally:
                    await closing(events)
            if self._command_id is not None:
                await self._process.kill(self._command_id, 9, timeout=10.0)
        except WorkspaceError:
            pass

    async def _raw_events(self) -> AsyncIterator[Optional[Dict[str, Any]]]:
        """Yields events up to the last one, over as many connections as that takes."""
        retry = -1
        deadline: Optional[Deadline] = None
        while True:
            failure: WorkspaceError = ServerUnreachableError("the stream ended before the command")
            events = self._process.connect(self._request())
            try:
                async for message in events:
                    # The server is there, so it is not given up, but without progress it is not asked at once again.
                    deadline = None
                    if message.event == COMMENT:
                        if self._command_id is None and message.data.startswith(COMMAND_ID_PREFIX):
                            self._command_id = message.data
                            yield None
                        continue
                    data = parse_event(message.data)
                    if data is None:
                        continue
                    retry = -1
                    self._command_id = data.get("commandId", self._command_id)
                    kind = data["type"]
                    if kind == "ended":
                        reason = data.get("message") or "access to the command ended"
                        raise UnauthorizedError(reason, name="UNAUTHORIZED", code=1001)
                    if self._is_new(data, message.id):
                        yield data
                    if kind in ("exit", "error"):
                        return
            except WorkspaceError as error:
                if not is_disconnection(error):
                    raise
                failure = error
            finally:
                await closing(events)
            retry += 1
            deadline = deadline or Deadline(self._process.config.reconnect_timeout or None)
            delay = reconnect_delay(retry, self._process.config)
            if deadline.has_passed(delay):
                raise failure
            await sleep(delay)

    def _is_new(self, data: Dict[str, Any], id: Optional[str]) -> bool:
        """Updates the offset, and cuts output that was received before. Returns false if nothing is left."""
        kind = data["type"]
        if kind in ("stdout", "stderr"):
            output, start = output_bytes(data), data["offset"]
            known = max(self._offset - start, 0)
            if known:
                output, data["offset"] = output[known:], start + known
            data["bytes"] = output
            self._offset = max(self._offset, data["offset"] + len(output))
            return bool(output)
        if kind == "gap":
            self._offset = max(self._offset, data["to"])
        return kind in ("gap", "exit", "error")

    def _request(self) -> Request:
        if self._command_id is not None:
            path = f"{self._process.path}/{segment(self._command_id)}/output"
            return Request("GET", path, headers={"last-event-id": str(self._offset)}, timeout=self._request_timeout)
        headers = idempotency_header(self._idempotency_key)
        path = f"{self._process.path}/run"
        body = present({**(self._body or {}), "stream": True})
        return Request("POST", path, json=body, headers=headers, repeatable=True, timeout=self._request_timeout)

    def _decode(self, data: Dict[str, Any], decoders: Mapping[str, Utf8Decoder]) -> List[StreamEvent]:
        kind, command_id, timestamp = data["type"], data["commandId"], data["timestamp"]
        if kind == "stdout" or kind == "stderr":
            text = decoders[kind].decode(data["bytes"])
            return [OutputEvent(kind, command_id, text, data["bytes"], data["offset"], timestamp)]
        events: List[StreamEvent] = []
        for stream, decoder in decoders.items():
            rest = decoder.finish()
            if rest:
                name: Any = stream
                events.append(OutputEvent(name, command_id, rest, b"", self._offset, timestamp))
        if kind == "gap":
            events.append(GapEvent(command_id, data["from"], data["to"], timestamp))
        elif kind == "exit":
            code, timed_out = data["exitCode"], data.get("timedOut") or False
            snapshot, trace_error = data.get("snapshot"), data.get("traceError")
            events.append(ExitEvent(command_id, code, timed_out, timestamp, snapshot, trace_error))
        else:
            code, timed_out = data.get("exitCode", -1), data.get("timedOut") or False
            events.append(ErrorEvent(command_id, data.get("message") or "", code, timed_out, timestamp))
        return events


class CommandHandle:
    """Command that runs in the background."""

    def __init__(self, process: ProcessService, command_id: str) -> None:
        self._process = process
        self.command_id = command_id
        """Id of the command."""

    def __repr__(self) -> str:
        return f"<CommandHandle {self.command_id}>"

    def output(self, *, from_: int = 0, check: bool = False) -> CommandStream:
        """Returns the events of the command, beginning with retained output."""
        return self._process.output(self.command_id, from_=from_, check=check)

    async def wait(
        self,
        *,
        check: bool = False,
        max_output_size: int = OUTPUT_MAX,
        on_stdout: Optional[OutputCallback] = None,
        on_stderr: Optional[OutputCallback] = None,
    ) -> CommandResult:
        """Waits until the command has ended, and returns its result."""
        stream = self.output(check=check)
        return await stream.wait(max_output_size=max_output_size, on_stdout=on_stdout, on_stderr=on_stderr)

    async def kill(self, signal: int = 15) -> None:
        """Sends a signal to the command and its processes."""
        await self._process.kill(self.command_id, signal)

    async def write_stdin(self, data: Union[str, bytes]) -> None:
        """Writes to the stdin of the command, which must have been started with `stdin=True`."""
        await self._process.write_stdin(self.command_id, data)

    async def close_stdin(self) -> None:
        """Closes the stdin of the command."""
        await self._process.write_stdin(self.command_id, b"", close=True)

    async def status(self) -> CommandRecord:
        """Returns the state of the command."""
        return await self._process.get(self.command_id)


class ProcessService(Service):
    """Commands of one sandbox. Durations are in seconds."""

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        super().__init__(transport)
        self._sandbox_path = f"/api/v1/sandboxes/{segment(sandbox_id)}"
        self.path = f"{self._sandbox_path}/process"

    async def run(
        self,
        command: CommandText,
        *,
        cwd: Optional[str] = None,
        envs: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        max_output_size: Optional[int] = None,
        user: Optional[str] = None,
        tag: Optional[str] = None,
        stdin: Union[None, str, bytes] = None,
        check: bool = False,
        on_stdout: Optional[OutputCallback] = None,
        on_stderr: Optional[OutputCallback] = None,
        kill_on_cancel: bool = False,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> CommandResult:
        """Runs a command and returns its result.

        `timeout` is that of the command: 60 seconds by default, 0 for none. A command that exceeds it is killed, and
        `ProcessTimeoutError` is raised. A nonzero exit code raises `CommandFailedError` if `check` is true. `stdin` is
        the whole input. The callbacks get output as it arrives. `request_timeout` limits the call, without killing
        the command; with `kill_on_cancel`, a call that is cancelled kills it. The call survives lost connections.
        """
        body = run_body(command, cwd, envs, timeout, user, tag)
        if stdin is not None or on_stdout is not None or on_stderr is not None or kill_on_cancel:
            body["overflow"] = "block"
            body["stdin"] = stdin is not None or None
            stream = CommandStream(
                self,
                body=body,
                idempotency_key=idempotency_key,
                kill_on_cancel=kill_on_cancel,
                request_timeout=request_timeout,
            )
            limit = OUTPUT_MAX if max_output_size is None else max_output_size
            async with stream:
                wait = partial(stream.wait, max_output_size=limit, on_stdout=on_stdout, on_stderr=on_stderr)
                if stdin is None:
                    result = await wait()
                else:
                    # At the same time, because a command may wait until its output is read before it reads on.
                    result = await beside(partial(self._send_input, await stream.id(), stdin), wait)
        else:
            body["maxOutputSize"] = max_output_size
            result = CommandResult.decode(await self._wait_for_result(body, idempotency_key, request_timeout))
        return result.raise_for_exit_code() if check or result.timed_out else result

    def run_stream(
        self,
        command: CommandText,
        *,
        cwd: Optional[str] = None,
        envs: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        user: Optional[str] = None,
        tag: Optional[str] = None,
        stdin: bool = False,
        overflow: Overflow = "block",
        check: bool = False,
        kill_on_cancel: bool = False,
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> CommandStream:
        """Runs a command and returns its events.

        The last event is `exit`, or `error` if the command could not be started or was lost with its sandbox: it may
        have run. With `overflow="block"`, a command waits when 16 MiB of its output are unread; with `drop`, the
        oldest output is dropped, and there is a `gap`. With `kill_on_cancel`, leaving the iteration kills the command.
        """
        body = run_body(command, cwd, envs, timeout, user, tag)
        body["overflow"], body["stdin"] = overflow, stdin or None
        return CommandStream(
            self,
            body=body,
            idempotency_key=idempotency_key,
            check=check,
            kill_on_cancel=kill_on_cancel,
            request_timeout=request_timeout,
        )

    async def start(
        self,
        command: CommandText,
        *,
        cwd: Optional[str] = None,
        envs: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
        user: Optional[str] = None,
        tag: Optional[str] = None,
        stdin: bool = False,
        overflow: Overflow = "drop",
        idempotency_key: Optional[str] = None,
        request_timeout: Optional[float] = None,
    ) -> CommandHandle:
        """Starts a command in the background. It also has a timeout: 60 seconds by default, 0 for none."""
        body = run_body(command, cwd, envs, timeout, user, tag)
        body.update(background=True, overflow=overflow, stdin=stdin or None)
        headers = idempotency_header(idempotency_key)
        started = await self._post(f"{self.path}/run", present(body), request_timeout, headers=headers, repeatable=True)
        return CommandHandle(self, started["commandId"])

    def output(self, command_id: str, *, from_: int = 0, check: bool = False) -> CommandStream:
        """Returns the events of a command, beginning with retained output from the offset `from_`."""
        return CommandStream(self, command_id=command_id, from_=from_, check=check)

    async def list(
        self, *, tag: Optional[str] = None, limit: Optional[int] = None, timeout: Optional[float] = None
    ) -> List[Command]:
        """Returns the commands of the sandbox, the newest first."""
        data = await self._get(self.path, timeout, tag=tag, limit=limit)
        return [Command.decode(item) for item in data["items"]]

    async def get(self, command_id: str, *, timeout: Optional[float] = None) -> CommandRecord:
        """Returns a command, running or ended."""
        return CommandRecord.decode(await self._get(f"{self.path}/{segment(command_id)}", timeout))

    async def kill(self, command_id: str, signal: int = 15, *, timeout: Optional[float] = None) -> None:
        """Sends a signal to a command and its processes, also to those that it left behind."""
        await self._post(f"{self.path}/{segment(command_id)}/kill", {"signal": signal}, timeout)

    async def write_stdin(
        self, command_id: str, data: Union[str, bytes], *, close: bool = False, timeout: Optional[float] = None
    ) -> None:
        """Writes to the stdin of a command that was started with `stdin=True`.

        Waits while the command does not read. Input is never sent twice: if the connection is lost meanwhile, the
        error is raised, because a part of the input may have arrived.
        """
        rest = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data)
        limit = self._transport.config.timeout if timeout is None else timeout
        deadline = Deadline(limit or None)
        path = f"{self.path}/{segment(command_id)}/stdin"
        retry = 0
        while True:
            piece = rest[:INPUT_REQUEST_MAX]
            is_last = len(piece) == len(rest)
            body = {"dataBase64": base64.b64encode(piece).decode(), "close": close and is_last}
            try:
                await self._post(path, body, deadline.remaining() or 0)
            except WorkspaceError as error:
                if error.name != "STDIN_FULL":
                    raise
                rest = rest[int(error.details.get("written", 0)) :]
                retry = 0 if error.details.get("written") else retry + 1
                delay = min(STDIN_RETRY_DELAY * 2 ** min(retry, 5), 1.0)
                if deadline.has_passed(delay):
                    raise
                await sleep(delay)
                continue
            rest = rest[len(piece) :]
            if is_last:
                return

    async def processes(self, *, timeout: Optional[float] = None) -> List[ProcessInfo]:
        """Returns the running processes, with the command that started each."""
        data = await self._get(f"{self._sandbox_path}/processes", timeout)
        return [ProcessInfo.decode(item) for item in data["items"]]

    def connect(self, request: Request) -> AsyncIterator[ServerSentEvent]:
        """Opens a stream of events."""
        return self._transport.events(request)

    @property
    def config(self) -> ClientConfig:
        """Configuration of the client."""
        return self._transport.config

    async def _wait_for_result(self, body: Dict[str, Any], key: Optional[str], request_timeout: Optional[float]) -> Any:
        deadline = Deadline(request_timeout or None)
        headers = idempotency_header(key)
        path = f"{self.path}/run"
        while True:
            # Nothing is sent while the command runs, so silence says nothing about the connection. The repeated
            # request has the same key: it waits for the same command.
            limits = [self._transport.config.idle_timeout or None, deadline.remaining()]
            limit = min((limit for limit in limits if limit is not None), default=0.0)
            try:
                return await self._post(path, present(body), limit, headers=headers, repeatable=True)
            except RequestTimeoutError:
                if deadline.has_passed():
                    raise

    async def _send_input(self, command_id: str, data: Union[str, bytes]) -> None:
        try:
            await self.write_stdin(command_id, data, close=True, timeout=0)
        except (ConflictError, NotFoundError):
            # The command has ended, or closed its stdin: as with a pipe, that is no error.
            pass
        except WorkspaceError:
            # Otherwise the command would wait for the rest of its input.
            await self._kill_quietly(command_id)
            raise

    async def _kill_quietly(self, command_id: str) -> None:
        """Kills a command. Errors are ignored: it may have ended."""
        try:
            await self.kill(command_id, 9, timeout=10.0)
        except WorkspaceError:
            pass


def run_body(
    command: CommandText,
    cwd: Optional[str],
    envs: Optional[Mapping[str, str]],
    timeout: Optional[float],
    user: Optional[str],
    tag: Optional[str],
) -> Dict[str, Any]:
    """Returns the fields that all requests for commands have."""
    milliseconds = None if timeout is None else round(timeout * 1000)
    return {
        **command_line(command),
        "cwd": cwd,
        "envs": dict(envs) if envs else None,
        "timeout": milliseconds,
        "user": user,
        "tag": tag,
    }


def present(fields: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def check_end(event: StreamEvent, tail: OutputTail) -> None:
    """Raises the error of a command that has failed."""
    if isinstance(event, ErrorEvent):
        raise start_failure(event)
    if isinstance(event, ExitEvent):
        tail.result(event).raise_for_exit_code()


def parse_event(text: str) -> Optional[Dict[str, Any]]:
    """Parses an event of a command; `None` if its type is unknown."""
    try:
        data = json.loads(text)
        known = data["type"] in ("stdout", "stderr", "gap", "exit", "error", "ended")
    except (ValueError, KeyError, TypeError) as error:
        raise UnexpectedResponseError("the server sent an invalid event") from error
    return data if known else None
