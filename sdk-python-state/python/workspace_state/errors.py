"""Errors of the state engine.

All of them are a `workspace_sdk.errors.WorkspaceError`. An error that the HTTP API has, too, has its class, `code` and
`name` there. The others have the code 0.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple, Type

from workspace_sdk.errors import (
    ConflictError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    PathNotFoundError,
    PreconditionFailedError,
    SnapshotNotFoundError,
    WorkspaceError,
)

__all__ = [
    "ForkedProcessError",
    "InternalError",
    "LocalChangesError",
    "StateError",
    "StoreClosedError",
    "StoreDamagedError",
]


class StateError(WorkspaceError):
    """The store, or a directory of the file system, failed."""


class StoreDamagedError(StateError):
    """Stored data is damaged or missing; `workspace verify` tells what."""


class StoreClosedError(StateError):
    """The store was closed."""


class ForkedProcessError(StateError):
    """The process was forked from one with an open store, and cannot use any."""


class InternalError(StateError):
    """The state engine failed in a way that is a defect of it."""


class LocalChangesError(ConflictError):
    """A checkout would lose local changes of a directory; `details["paths"]` has their paths."""


_BY_NAME: Dict[str, Tuple[Type[WorkspaceError], int]] = {
    "DIRECTORY_CONFLICT": (ConflictError, 0),
    "DIRECTORY_FAILED": (StateError, 0),
    "DIRECTORY_UNREADABLE": (StateError, 0),
    "EPISODE_NOT_FOUND": (NotFoundError, 3101),
    "FILE_CONFLICT": (ConflictError, 4202),
    "INTERNAL_ERROR": (InternalError, 9001),
    "INVALID_REQUEST": (InvalidRequestError, 9003),
    "LOCAL_CHANGES": (LocalChangesError, 0),
    "PATH_INVALID": (InvalidRequestError, 0),
    "PATH_NOT_FOUND": (PathNotFoundError, 3003),
    "PRECONDITION_FAILED": (PreconditionFailedError, 4203),
    "REFERENCE_NOT_FOUND": (NotFoundError, 3012),
    "SNAPSHOT_NOT_FOUND": (SnapshotNotFoundError, 3001),
    "STORAGE_FULL": (LimitExceededError, 9014),
    "STORE_BUSY": (ConflictError, 0),
    "STORE_CLOSED": (StoreClosedError, 0),
    "STORE_DAMAGED": (StoreDamagedError, 0),
    "STORE_FAILED": (StateError, 0),
    "STORE_FORKED": (ForkedProcessError, 0),
    "STORE_NOT_FOUND": (NotFoundError, 0),
    "STORE_UNSUPPORTED": (StateError, 0),
    "TREE_TOO_LARGE": (LimitExceededError, 3011),
}


def error_of(name: str, message: str, details: Mapping[str, Any], retryable: bool) -> WorkspaceError:
    """Creates the error that the native module reports."""
    cls, code = _BY_NAME[name]
    return cls(message, code=code, name=name, details=details, retryable=retryable)
