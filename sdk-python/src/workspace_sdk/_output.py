"""Output of commands: decoding, collecting, and the errors that contain it."""

from __future__ import annotations

import codecs
from typing import Any, Dict, List, Mapping, Sequence, Union

from .errors import CommandFailedError
from .results import CommandResult, ErrorEvent, ExitEvent, OutputEvent, decode_bytes

OUTPUT_MAX = 1 << 20
"""Default of the maximum size of output in a result, in bytes."""

TAIL_MAX = 64 << 10
"""Maximum size of the output of a stream that an error contains, in bytes, for each of stdout and stderr."""


class Utf8Decoder:
    """Incremental decoder that replaces invalid bytes, and keeps an incomplete character for later."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def decode(self, data: bytes) -> str:
        """Returns the characters that the bytes complete."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Returns U+FFFD if a character is incomplete, else nothing."""
        rest = self._decoder.decode(b"", True)
        self._decoder.reset()
        return rest


class OutputCollector:
    """Output of a command for its result, up to a maximum size."""

    def __init__(self, limit: int) -> None:
        self._remaining = limit
        self._pieces: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        self.truncated = False

    def add(self, event: OutputEvent) -> None:
        """Adds output, or a part of it if the limit is reached."""
        data = event.bytes
        if len(data) > self._remaining:
            self.truncated = True
            data, self._remaining = whole_characters(data[: self._remaining]), 0
        else:
            self._remaining -= len(data)
        self._pieces[event.type].append(data)

    def result(self, event: ExitEvent) -> CommandResult:
        """Returns the result of the command."""
        stdout, stderr = b"".join(self._pieces["stdout"]), b"".join(self._pieces["stderr"])
        return CommandResult(
            command_id=event.command_id,
            exit_code=event.exit_code,
            stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace"),
            truncated=self.truncated,
            timed_out=event.timed_out,
            snapshot=event.snapshot,
            trace_error=event.trace_error,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
        )


class OutputTail:
    """Last output of a stream, for the error of a command that failed."""

    def __init__(self) -> None:
        self._kept: Dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.truncated = False

    def add(self, event: OutputEvent) -> None:
        """Adds output, and forgets the oldest."""
        kept = self._kept[event.type] + event.bytes[-TAIL_MAX:]
        if len(event.bytes) > TAIL_MAX or len(kept) > TAIL_MAX:
            self.truncated = True
        self._kept[event.type] = kept[-TAIL_MAX:]

    def result(self, event: Union[ExitEvent, ErrorEvent]) -> CommandResult:
        """Returns the result of the command with the last output."""
        stdout, stderr = self._kept["stdout"], self._kept["stderr"]
        return CommandResult(
            command_id=event.command_id,
            exit_code=event.exit_code,
            stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace"),
            truncated=self.truncated,
            timed_out=event.timed_out,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
        )


def start_failure(event: ErrorEvent) -> CommandFailedError:
    """Creates the error for a command that could not be started, or was lost."""
    details = {
        "commandId": event.command_id,
        "exitCode": event.exit_code,
        "stdout": "",
        "stderr": "",
        "truncated": False,
    }
    return CommandFailedError(event.message, code=4002, name="COMMAND_FAILED", details=details)


def whole_characters(data: bytes) -> bytes:
    """Removes an incomplete character at the end. Other bytes that are not UTF-8 stay."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    return decoder.decode(data).encode("utf-8", "surrogateescape")


def output_bytes(data: Mapping[str, Any]) -> bytes:
    """Returns the output of an event."""
    return decode_bytes(data.get("data") or "", data.get("dataBase64"))


def command_line(command: Union[str, Sequence[str]]) -> Dict[str, Any]:
    """Returns the fields for a command line of the shell, or for a program with its arguments."""
    return {"command": command} if isinstance(command, str) else {"argv": list(command)}
