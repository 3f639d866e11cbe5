"""State engine inside this process: snapshots and virtual trees, without a server.

It is in the package `elevo-workspace-state`. All its errors are a `WorkspaceError`.
"""

try:
    from workspace_state import (
        CheckoutReport,
        Difference,
        DirectorySnapshot,
        Entry,
        Episode,
        Episodes,
        Expect,
        ForkedProcessError,
        GarbageReport,
        InternalError,
        LocalChangesError,
        References,
        SkippedEntry,
        Snapshot,
        Snapshots,
        Stat,
        StateError,
        Store,
        StoreClosedError,
        StoreDamagedError,
        VirtualTree,
    )
except ModuleNotFoundError as error:
    if error.name != "workspace_state":
        raise
    raise ImportError(
        "workspace_sdk.state needs another package: pip install elevo-workspace-state", name="workspace_state"
    ) from error

__all__ = [
    "CheckoutReport",
    "Difference",
    "DirectorySnapshot",
    "Entry",
    "Episode",
    "Episodes",
    "Expect",
    "ForkedProcessError",
    "GarbageReport",
    "InternalError",
    "LocalChangesError",
    "References",
    "SkippedEntry",
    "Snapshot",
    "Snapshots",
    "Stat",
    "StateError",
    "Store",
    "StoreClosedError",
    "StoreDamagedError",
    "VirtualTree",
]
