"""SDK of Elevo Workspace: sandboxes, files, snapshots and projects for agents.

The clients of this package are asynchronous; `workspace_sdk.sync` has the same for synchronous programs.
"""

from ._config import ClientConfig
from ._version import __version__
from .client import WorkspaceClient, with_sandbox
from .errors import WorkspaceError
from .nfs import NFSMount, NFSService
from .ports import PortConnection
from .process import CommandHandle, CommandStream
from .pty import PTYHandle
from .results import (
    BuildCachedEvent,
    BuildDoneEvent,
    BuildEvent,
    BuildOutputEvent,
    BuildStepEvent,
    CommandResult,
    ErrorEvent,
    EventGapMessage,
    ExitEvent,
    FileChangedEvent,
    FileRenamedEvent,
    GapEvent,
    OutputEvent,
    Page,
    Progress,
    PTYErrorEvent,
    PTYEvent,
    PTYExitEvent,
    PTYGapEvent,
    PTYOutputEvent,
    StreamEvent,
    WatchDroppedEvent,
    WatchEndedEvent,
    WatchEvent,
)
from .sandbox import ForkResult, RebaseResult, RestoreResult, Sandbox
from .tools import anthropic_tools, call_tool, openai_tools
from .types import CreateSandboxParams, Resources

__all__ = [
    "ClientConfig",
    "CommandHandle",
    "CommandResult",
    "CommandStream",
    "CreateSandboxParams",
    "ErrorEvent",
    "EventGapMessage",
    "ExitEvent",
    "ForkResult",
    "GapEvent",
    "NFSMount",
    "NFSService",
    "OutputEvent",
    "PTYErrorEvent",
    "PTYEvent",
    "PTYExitEvent",
    "PTYGapEvent",
    "PTYHandle",
    "PTYOutputEvent",
    "Page",
    "PortConnection",
    "Progress",
    "RebaseResult",
    "Resources",
    "RestoreResult",
    "Sandbox",
    "StreamEvent",
    "WorkspaceClient",
    "WorkspaceError",
    "__version__",
    "anthropic_tools",
    "call_tool",
    "openai_tools",
    "with_sandbox",
    "BuildCachedEvent",
    "BuildDoneEvent",
    "BuildEvent",
    "BuildOutputEvent",
    "BuildStepEvent",
    "FileChangedEvent",
    "FileRenamedEvent",
    "WatchDroppedEvent",
    "WatchEndedEvent",
    "WatchEvent",
]
