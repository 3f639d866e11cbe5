"""State engine of Elevo Workspace: snapshots of file trees, and virtual trees for searches, without a server.

`workspace_sdk.state` has the same names.
"""

from ._state import (
    CheckoutReport,
    Difference,
    DirectorySnapshot,
    Entry,
    Episode,
    Episodes,
    Expect,
    GarbageReport,
    References,
    SkippedEntry,
    Snapshot,
    Snapshots,
    Stat,
    Store,
    VirtualTree,
)
from .errors import (
    ForkedProcessError,
    InternalError,
    LocalChangesError,
    StateError,
    StoreClosedError,
    StoreDamagedError,
)

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
