"""Results and events that have no generated type, and pages of lists."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Generic, List, Literal, Mapping, Optional, TypeVar, Union

from .errors import CommandFailedError, ProcessTimeoutError, UnexpectedResponseError
from .types import Template

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
class FileChangedEvent:
    """Change of a watched file or directory."""

    type: Literal["created", "modified", "removed", "attributes"]
    """Kind of the change."""
    path: str
    """Path relative to the watched directory; empty for itself."""
    directory: bool
    """True for a directory."""


@dataclass
class FileRenamedEvent:
    """Renaming of a file or directory within the watched directory."""

    path: str
    """New path, relative to the watched directory."""
    from_: str
    """Old path, relative to the watched directory."""
    directory: bool
    """True for a directory."""
    type: Literal["renamed"] = "renamed"


@dataclass
class WatchDroppedEvent:
    """Changes that were lost, because there were too many or the connection was lost: list the directory again."""

    path: str = ""
    """Directory below which changes were lost, relative to the watched one; empty for itself."""
    type: Literal["dropped"] = "dropped"


@dataclass
class WatchEndedEvent:
    """End of a watch, the last event."""

    reason: str
    """Reason why the watch ended."""
    type: Literal["ended"] = "ended"


WatchEvent = Union[FileChangedEvent, FileRenamedEvent, WatchDroppedEvent, WatchEndedEvent]
"""Event of a watch, to be told apart by `type`."""


def decode_watch_event(data: Mapping[str, Any]) -> Optional[WatchEvent]:
    """Creates an event from parsed JSON. Returns `None` for a type that only newer servers know."""
    kind = data.get("type")
    if kind in ("created", "modified", "removed", "attributes"):
        return FileChangedEvent(kind, data["path"], data["directory"])
    if kind == "renamed":
        return FileRenamedEvent(data["path"], data["from"], data["directory"])
    if kind == "dropped":
        return WatchDroppedEvent(data["path"])
    return WatchEndedEvent(data["reason"]) if kind == "ended" else None


@dataclass
class BuildStepEvent:
    """Start of a step of a build."""

    step: int
    """Number of the step, from 1."""
    steps: int
    """Total number of steps."""
    text: str
    """Description of the step in one line."""
    type: Literal["step"] = "step"


@dataclass
class BuildCachedEvent:
    """Step of a build that does not run, because its result is cached."""

    step: int
    """Number of the step, from 1."""
    type: Literal["cached"] = "cached"


@dataclass
class BuildOutputEvent:
    """Output of a step of a build."""

    stream: Literal["stdout", "stderr"]
    """Stream that the output was written to."""
    data: str
    """Output as text. Bytes that are not UTF-8 are replaced by U+FFFD."""
    bytes: bytes
    """Output as it was written."""
    type: Literal["output"] = "output"


@dataclass
class BuildDoneEvent:
    """End of a successful build, the last event."""

    steps: int
    """Total number of steps."""
    cached: int
    """Number of steps with a cached result, which did not run."""
    created: bool
    """False if the newest version has the same content, so no new version was created."""
    template: Template
    """The template."""
    type: Literal["done"] = "done"


BuildEvent = Union[BuildStepEvent, BuildCachedEvent, BuildOutputEvent, BuildDoneEvent]
"""Event of the build of a template, to be told apart by `type`. A failed build raises an error instead."""


def decode_build_event(data: Mapping[str, Any]) -> BuildEvent:
    """Creates an event from parsed JSON, except for `error`."""
    kind = data.get("type")
    if kind == "step":
        return BuildStepEvent(data["step"], data["steps"], data["text"])
    if kind == "cached":
        return BuildCachedEvent(data["step"])
    if kind == "output":
        output = decode_bytes(data.get("data") or "", data.get("dataBase64"))
        return BuildOutputEvent(data["stream"], output.decode("utf-8", "replace"), output)
    if kind == "done":
        return BuildDoneEvent(data["steps"], data["cached"], data["created"], Template.decode(data["template"]))
    raise UnexpectedResponseError(f"the server sent an event of a build of the unknown type {kind!r}")


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
