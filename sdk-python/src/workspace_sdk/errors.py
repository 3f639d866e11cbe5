"""Errors of the SDK.

Every error is a `WorkspaceError`. An error that the server reported has the `code` and the `name` of
`docs/errors.md`. An error of the SDK itself has the code 0.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type

__all__ = [
    "CommandFailedError",
    "CommandNotFoundError",
    "ConfigurationError",
    "ConflictError",
    "ForbiddenError",
    "InvalidRequestError",
    "LimitExceededError",
    "MountError",
    "NotFoundError",
    "PTYLimitExceededError",
    "PTYNotFoundError",
    "PathNotFoundError",
    "PreconditionFailedError",
    "ProcessTimeoutError",
    "ProjectNotFoundError",
    "RateLimitedError",
    "RequestTimeoutError",
    "SandboxExpiredError",
    "SandboxGoneError",
    "SandboxLimitExceededError",
    "SandboxNotFoundError",
    "SandboxNotRunningError",
    "ServerError",
    "ServerUnreachableError",
    "SnapshotNotFoundError",
    "TemplateNotFoundError",
    "UnauthorizedError",
    "UnexpectedResponseError",
    "WorkspaceError",
]

RETRYABLE = frozenset(
    {
        "AGENT_UNAVAILABLE",
        "ANSWERS_UNREAD",
        "CATALOG_UNAVAILABLE",
        "COMMAND_LIMIT_EXCEEDED",
        "CONNECTION_LIMIT_EXCEEDED",
        "PROJECT_BUSY",
        "QUEUE_FULL",
        "RATE_LIMITED",
        "REQUEST_TIMEOUT",
        "RUNTIME_UNAVAILABLE",
        "SANDBOX_CONFLICT",
        "SHUTTING_DOWN",
        "STDIN_FULL",
        "TICKET_LIMIT_EXCEEDED",
        "TRANSFER_LIMIT_EXCEEDED",
        "UPLOADS_BUSY",
        "UPLOAD_LIMIT_EXCEEDED",
        "WORKSPACE_BUSY",
        "WORKSPACE_CHANGING",
    }
)
"""Names of the errors after which the same request may succeed later."""


class WorkspaceError(Exception):
    """Root of all errors of the SDK."""

    code: int
    """Number of the error in `docs/errors.md`; 0 for an error of the SDK."""
    name: str
    """Name of the error, such as `SANDBOX_NOT_FOUND`."""
    message: str
    """Description for people."""
    status: Optional[int]
    """HTTP status; `None` without a response."""
    request_id: Optional[str]
    """Id under which the log of the server has details; `None` without a response of the API."""
    details: Dict[str, Any]
    """Further fields, which depend on the error."""
    retryable: bool
    """True if the same call may succeed later."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        name: str = "",
        status: Optional[int] = None,
        request_id: Optional[str] = None,
        details: Optional[Mapping[str, Any]] = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.name = name
        self.status = status
        self.request_id = request_id
        self.details = dict(details or {})
        self.retryable = retryable

    def __str__(self) -> str:
        known = ", ".join(part for part in (self.name, self.request_id) if part)
        return f"{self.message} ({known})" if known else self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, code={self.code}, name={self.name!r})"

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.message, self.__dict__)


def _restore(cls: Type[WorkspaceError], message: str, state: Dict[str, Any]) -> WorkspaceError:
    """Creates an error again that was pickled, for example by `multiprocessing`."""
    error = cls.__new__(cls, message)
    error.__dict__.update(state)
    return error


class UnauthorizedError(WorkspaceError):
    """The key, token or ticket is missing, unknown, expired or revoked."""


class ForbiddenError(WorkspaceError):
    """The key or token does not allow this."""


class NotFoundError(WorkspaceError):
    """Something does not exist, or does not exist any more, or belongs to another owner."""


class SandboxGoneError(NotFoundError):
    """The server responded, but the sandbox does not exist or has expired."""


class SandboxNotFoundError(SandboxGoneError):
    """There is no such sandbox, or it belongs to another owner."""


class SandboxExpiredError(SandboxGoneError):
    """The sandbox has expired."""


class TemplateNotFoundError(NotFoundError):
    """There is no such template."""


class SnapshotNotFoundError(NotFoundError):
    """There is no such snapshot, or it belongs to another owner."""


class PathNotFoundError(NotFoundError):
    """A snapshot, a project or a sandbox has no entry at the path."""


class CommandNotFoundError(NotFoundError):
    """There is no such command in the sandbox."""


class PTYNotFoundError(NotFoundError):
    """There is no such terminal in the sandbox."""


class ProjectNotFoundError(NotFoundError):
    """There is no such project, or it belongs to another owner."""


class ConflictError(WorkspaceError):
    """The present state does not allow the request."""


class SandboxNotRunningError(ConflictError):
    """The state of the sandbox does not allow the request; `details["state"]` has the state."""


class PreconditionFailedError(ConflictError):
    """`if_match` or `if_none_match` does not fit the present state."""


class LimitExceededError(WorkspaceError):
    """A limit of the server, the owner, the sandbox or a disk is reached."""


class SandboxLimitExceededError(LimitExceededError):
    """The owner or the server has the maximum number of sandboxes."""


class PTYLimitExceededError(LimitExceededError):
    """The sandbox has the maximum number of terminals."""


class RateLimitedError(LimitExceededError):
    """The key made too many requests."""

    retry_after: Optional[float] = None
    """Seconds after which the server accepts requests again; `None` if it did not say."""


class InvalidRequestError(WorkspaceError):
    """The server refused the request for another reason; the message says why."""


class _CommandError(WorkspaceError):
    @property
    def command_id(self) -> Optional[str]:
        """Id of the command."""
        return self.details.get("commandId")

    @property
    def exit_code(self) -> Optional[int]:
        """Exit code; 128 + n if the command was killed by signal n."""
        return self.details.get("exitCode")

    @property
    def stdout(self) -> str:
        """Output of the command until then; of a stream, what was received last."""
        return self.details.get("stdout") or ""

    @property
    def stderr(self) -> str:
        """Error output of the command until then; of a stream, what was received last."""
        return self.details.get("stderr") or ""

    @property
    def truncated(self) -> bool:
        """True if `stdout` and `stderr` are not complete."""
        return bool(self.details.get("truncated"))


class ProcessTimeoutError(_CommandError):
    """The command exceeded its timeout and was killed."""


class CommandFailedError(_CommandError):
    """The command could not be started, was lost with its sandbox or, with `check`, its exit code is not zero."""


class ServerError(WorkspaceError):
    """The server failed; its log has details under `request_id`."""


class ServerUnreachableError(WorkspaceError):
    """There is no connection to the server, or it was lost. Says nothing about the sandbox."""

    def __init__(self, message: str, **fields: Any) -> None:
        fields.setdefault("name", "SERVER_UNREACHABLE")
        fields.setdefault("retryable", True)
        super().__init__(message, **fields)


class RequestTimeoutError(WorkspaceError):
    """The call took longer than its timeout. The server may still perform it."""

    def __init__(self, message: str, **fields: Any) -> None:
        fields.setdefault("name", "CLIENT_TIMEOUT")
        fields.setdefault("retryable", True)
        super().__init__(message, **fields)


class UnexpectedResponseError(WorkspaceError):
    """The response is not one of a workspace server."""

    def __init__(self, message: str, **fields: Any) -> None:
        fields.setdefault("name", "UNEXPECTED_RESPONSE")
        super().__init__(message, **fields)


class ConfigurationError(WorkspaceError):
    """The configuration of the client is not valid."""

    def __init__(self, message: str, **fields: Any) -> None:
        fields.setdefault("name", "CONFIGURATION_INVALID")
        super().__init__(message, **fields)


class MountError(WorkspaceError):
    """A workspace could not be mounted on this machine, or unmounted."""

    command: str
    """Command line that failed, or that somebody with the needed rights can run. It has the path of the export."""

    def __init__(self, message: str, *, hint: str = "", command: str = "", **fields: Any) -> None:
        fields.setdefault("name", "MOUNT_FAILED")
        super().__init__(f"{message}\nhint: {hint}" if hint else message, **fields)
        self.command = command

    def __str__(self) -> str:
        # The message ends with a command line.
        return self.message


_BY_NAME: Dict[str, Type[WorkspaceError]] = {
    "COMMAND_FAILED": CommandFailedError,
    "COMMAND_NOT_FOUND": CommandNotFoundError,
    "PATH_NOT_FOUND": PathNotFoundError,
    "PRECONDITION_FAILED": PreconditionFailedError,
    "PROCESS_TIMEOUT": ProcessTimeoutError,
    "PROJECT_NOT_FOUND": ProjectNotFoundError,
    "PTY_LIMIT_EXCEEDED": PTYLimitExceededError,
    "PTY_NOT_FOUND": PTYNotFoundError,
    "RATE_LIMITED": RateLimitedError,
    "SANDBOX_EXPIRED": SandboxExpiredError,
    "SANDBOX_LIMIT_EXCEEDED": SandboxLimitExceededError,
    "SANDBOX_NOT_FOUND": SandboxNotFoundError,
    "SANDBOX_NOT_RUNNING": SandboxNotRunningError,
    "SNAPSHOT_NOT_FOUND": SnapshotNotFoundError,
    "TEMPLATE_NOT_FOUND": TemplateNotFoundError,
}

_BY_STATUS: Dict[int, Type[WorkspaceError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    412: ConflictError,
    429: LimitExceededError,
    507: LimitExceededError,
}

_STATUS_OF_BATCH: Dict[str, int] = {"DISK_LIMIT_EXCEEDED": 507, "FILE_CONFLICT": 409, "FILE_DENIED": 403}
"""HTTP statuses of errors that events and batches contain."""


def error_of_fields(
    fields: Mapping[str, Any], status: Optional[int] = None, retry_after: Optional[float] = None
) -> WorkspaceError:
    """Creates the error that the server described. `status` is `None` for errors in events and batches."""
    name = str(fields.get("name", ""))
    cls = _BY_NAME.get(name)
    if cls is None:
        known = status or _STATUS_OF_BATCH.get(name, 400)
        cls = _BY_STATUS.get(known, ServerError if known >= 500 else InvalidRequestError)
    error = cls(
        str(fields.get("message", "")),
        code=int(fields.get("code", 0)),
        name=name,
        status=status,
        request_id=fields.get("requestId") or None,
        details=fields.get("details"),
        retryable=name in RETRYABLE,
    )
    if isinstance(error, RateLimitedError):
        error.retry_after = retry_after
    return error
