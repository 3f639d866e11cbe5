"""Results and events that have no generated type, and pages of lists."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Generic, List, Literal, Mapping, Optional, TypeVar, Union

from .errors import CommandFailedError, ProcessTimeoutError, UnexpectedResponseError

T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    """Page of a list."""

    items: List[T]
    """Items of this page."""
    limit: Optional[int] = None
    """Maximum number of items of a page."""
    total: Optional[int] = None
    """Number of all items; `None` if the server does not count them."""
    page: Optional[int] = None
    """Number of the page, from 1; `None` if the list has no numbered pages."""
    next: Union[None, str, int] = None
    """Value for `cursor` or `before` of the next page; `None` on the last page."""


@dataclass
class CommandResult:
    """Result of a command that has ended."""

    command_id: str
    """Id of the command."""
    exit_code: int
    """Exit code; 128 + n if the command was killed by signal n."""
    stdout: str
    """Output as text. Bytes that are not UTF-8 are replaced by U+FFFD."""
    stderr: str
    """Error output as text. Bytes that are not UTF-8 are replaced by U+FFFD."""
    truncated: bool = False
    """True if output was cut off or is no longer available."""
    timed_out: bool = False
    """True if the command was killed by its timeout."""
    snapshot: Optional[str] = None
    """Id of the automatic snapshot after the command; `None` if there is none."""
    trace_error: Optional[str] = None
    """Reason why there is no automatic snapshot although there should be one."""
    stdout_bytes: bytes = field(default=b"", repr=False)
    """Output as it was written."""
    stderr_bytes: bytes = field(default=b"", repr=False)
    """Error output as it was written."""

    @property
    def stdout_base64(self) -> Optional[str]:
        """Output in base64; `None` if it is UTF-8."""
        return encode_if_binary(self.stdout_bytes)

    @property
    def stderr_base64(self) -> Optional[str]:
        """Error output in base64; `None` if it is UTF-8."""
        return encode_if_binary(self.stderr_bytes)

    @property
    def ok(self) -> bool:
        """True if the exit code is 0."""
        return self.exit_code == 0

    def raise_for_exit_code(self) -> CommandResult:
        """Raises `ProcessTimeoutError` or `CommandFailedError` unless the exit code is 0. Returns the result."""
        if self.timed_out:
            message = "the command exceeded its timeout and was killed"
            raise ProcessTimeoutError(message, code=4001, name="PROCESS_TIMEOUT", details=self._details())
        if self.exit_code != 0:
            message = f"the command exited with {self.exit_code}"
            last = next((line for line in reversed(self.stderr.splitlines()) if line.strip()), None)
            message = f"{message}: {last.strip()}" if last else message
            raise CommandFailedError(message, code=4002, name="COMMAND_FAILED", details=self._details())
        return self

    def _details(self) -> Dict[str, Any]:
        return {
            "commandId": self.command_id,
            "exitCode": self.exit_code,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "truncated": self.truncated,
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> CommandResult:
        """Creates the result from parsed JSON."""
        try:
            stdout, stderr = data["stdout"], data["stderr"]
            return cls(
                command_id=data["commandId"],
                exit_code=data["exitCode"],
                stdout=stdout,
                stderr=stderr,
                truncated=data["truncated"],
                snapshot=data.get("snapshot"),
                trace_error=data.get("traceError"),
                stdout_bytes=decode_bytes(stdout, data.get("stdoutBase64")),
                stderr_bytes=decode_bytes(stderr, data.get("stderrBase64")),
            )
        except (KeyError, TypeError) as error:
            raise UnexpectedResponseError("the server sent no result of a command") from error


@dataclass
class OutputEvent:
    """Output of a command."""

    type: Literal["stdout", "stderr"]
    command_id: str
    """Id of the command."""
    data: str
    """Output as text, without a character whose end has not arrived yet."""
    bytes: bytes
    """Output as it was written."""
    offset: int
    """Offset of the first byte in the output of the command, counted over stdout and stderr."""
    timestamp: int
    """Milliseconds since 1970-01-01 UTC."""


@dataclass
class GapEvent:
    """Output that is lost, because it was not read before the server dropped it."""

    command_id: str
    """Id of the command."""
    from_: int
    """Offset of the first lost byte."""
    to: int
    """Offset of the first byte after the lost ones."""
    timestamp: int
    """Milliseconds since 1970-01-01 UTC."""
    type: Literal["gap"] = "gap"


@dataclass
class ExitEvent:
    """End of a command, the last event of its stream."""

    command_id: str
    """Id of the command."""
    exit_code: int
    """Exit code; 128 + n if the command was killed by signal n."""
    timed_out: bool
    """True if the command was killed by its timeout."""
    timestamp: int
    """Milliseconds since 1970-01-01 UTC."""
    snapshot: Optional[str] = None
    """Id of the automatic snapshot after the command; `None` if there is none."""
    trace_error: Optional[str] = None
    """Reason why there is no automatic snapshot although there should be one."""
    type: Literal["exit"] = "exit"


@dataclass
class ErrorEvent:
    """Failure to start a command, the last event of its stream."""

    command_id: str
    """Id of the command."""
    message: str
    """Reason of the failure."""
    exit_code: int
    """Exit code that a shell would report, such as 127."""
    timed_out: bool
    """True if the command was killed by its timeout."""
    timestamp: int
    """Milliseconds since 1970-01-01 UTC."""
    type: Literal["error"] = "error"


StreamEvent = Union[OutputEvent, GapEvent, ExitEvent, ErrorEvent]
"""Event of a command, to be told apart by `type`."""


@dataclass
class PTYOutputEvent:
    """Output of a terminal."""

    data: str
    """Output as text, without a character whose end has not arrived yet."""
    bytes: bytes
    """Output as it was written."""
    offset: int
    """Offset of the first byte in the output of the terminal."""
    type: Literal["output"] = "output"


@dataclass
class PTYGapEvent:
    """Output of a terminal that is no longer retained."""

    from_: int
    """Offset of the first lost byte."""
    to: int
    """Offset of the first byte after the lost ones."""
    type: Literal["gap"] = "gap"


@dataclass
class PTYErrorEvent:
    """Error that the server reports about a message, such as input on a read-only connection."""

    message: str
    """Description for people."""
    type: Literal["error"] = "error"


@dataclass
class PTYExitEvent:
    """End of the shell of a terminal, the last event."""

    exit_code: int
    """Exit code; 128 + n if the shell was killed by signal n."""
    type: Literal["exit"] = "exit"


PTYEvent = Union[PTYOutputEvent, PTYGapEvent, PTYErrorEvent, PTYExitEvent]
"""Event of a terminal, to be told apart by `type`."""


@dataclass
class EventGapMessage:
    """Events that were deleted before they were read: read the present state instead."""

    from_: int
    """Number of the first event that may be missing."""
    to: int
    """Number of the last event that may be missing."""
    type: Literal["gap"] = "gap"


@dataclass
class Progress:
    """Progress of an upload or a download."""

    files: int
    """Number of files so far."""
    bytes: int
    """Size of their content so far, in bytes."""


ProgressCallback = Callable[[Progress], Any]
"""Function that is called during long transfers."""


def decode_bytes(text: str, encoded: Optional[str]) -> bytes:
    """Returns the bytes of output that is sent as text, or in base64 if it is not UTF-8."""
    return base64.b64decode(encoded) if encoded is not None else text.encode("utf-8", "surrogatepass")


def encode_if_binary(data: bytes) -> Optional[str]:
    """Returns the bytes in base64; `None` if they are UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
    return None
