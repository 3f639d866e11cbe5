//! Hooks that the caller of the crate, who owns the exported directories, implements: gate, disk limit and observer.
//!
//! They are called on the threads of connections, which may block. The server holds no lock while it calls a hook.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

use crate::operation::Operation;

/// Shared access to a directory, which ends when the guard is dropped. The guard is dropped on the thread that got it.
pub type GateGuard = Box<dyn Any>;

/// Gate of an export, a read-write lock: every operation on files has shared access. The owner of the directory has
/// exclusive access while it freezes, reads or replaces the directory.
pub trait Gate: Send + Sync {
    /// Returns shared access without waiting; `None` if that is not possible.
    fn try_shared(&self) -> Option<GateGuard>;

    /// Waits for shared access, at most for `max_wait`. After `None` the client is told to try again later (JUKEBOX).
    fn shared(&self, max_wait: Duration) -> Option<GateGuard>;

    /// Called with shared access before an operation that changes files.
    fn changing(&self) {}
}

/// Limit of the disk space that an export may use. It is for file systems without a quota of the kernel.
pub trait DiskLimit: Send + Sync {
    /// Returns false to refuse an operation that takes space; the client then gets DQUOT. `bytes` is the length of a
    /// write, or zero for other operations: creation of a directory entry, and growth of a file by SETATTR.
    fn allows(&self, bytes: u64) -> bool;
}

/// Direction in which file content is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From files to clients.
    Read,
    /// From clients to files.
    Write,
}

/// Outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The status was OK.
    Done,
    /// The status was an error of NFS or MOUNT, with this number.
    Failed(u32),
    /// The client had sent the same call before. It was not executed again; the client got the first reply.
    Replayed,
}

/// Mount or unmount of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountEvent<'a> {
    /// Address of the client.
    pub client: SocketAddr,
    /// Name of the export.
    pub export: &'a str,
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The address of the client is not in the list of the server, or not in that of the export.
    Address,
    /// The mount secret was missing or wrong.
    Secret,
    /// There is no such export.
    UnknownExport,
    /// The file handle was not made by this server.
    ForgedHandle,
    /// There were too many connections: a new one was refused, or an older one was closed to make room.
    Connections,
    /// The client sent data that is not an RPC call.
    MalformedRecord,
}

impl RefusalReason {
    /// All reasons, so that metrics can start with a zero for each.
    pub const ALL: [Self; 6] = [
        Self::Address,
        Self::Secret,
        Self::UnknownExport,
        Self::ForgedHandle,
        Self::Connections,
        Self::MalformedRecord,
    ];

    /// Returns the position in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the name for logs: lower case, words separated by underscores.
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Secret => "secret",
            Self::UnknownExport => "unknown_export",
            Self::ForgedHandle => "forged_handle",
            Self::Connections => "connections",
            Self::MalformedRecord => "malformed_record",
        }
    }
}

/// Refused connection, mount or operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// Address of the client.
    pub client: SocketAddr,
    /// Name of the export; `None` if the refusal does not belong to one. For MNT it is the name that the client sent.
    pub export: Option<&'a str>,
    /// Reason of the refusal.
    pub reason: RefusalReason,
}

/// Observer of a server, for metrics and the audit log. The server calls it within every operation, so it must be
/// quick.
pub trait Observer: Send + Sync {
    /// Called after every operation, before its reply is sent.
    fn operation(&self, operation: Operation, outcome: Outcome) {
        let _ = (operation, outcome);
    }

    /// Called after every READ and WRITE that succeeded. `count` is the length of the content in bytes.
    fn bytes(&self, direction: Direction, count: u64) {
        let _ = (direction, count);
    }

    /// Called after a client mounted an export or a directory below, unless the list of mounts has this address and
    /// export already. The list has at most 1024 mounts; the call is repeated for a mount that has no room in it.
    fn mounted(&self, event: MountEvent<'_>) {
        let _ = event;
    }

    /// Called after a client has announced by UMNT or UMNTALL that it does not use an export any more.
    fn unmounted(&self, event: MountEvent<'_>) {
        let _ = event;
    }

    /// Called after a refusal.
    fn refused(&self, refusal: Refusal<'_>) {
        let _ = refusal;
    }
}

/// Gate that is always open.
#[derive(Debug, Clone, Copy)]
pub struct NoGate;

impl Gate for NoGate {
    fn try_shared(&self) -> Option<GateGuard> {
        Some(Box::new(()))
    }

    fn shared(&self, _max_wait: Duration) -> Option<GateGuard> {
        self.try_shared()
    }
}

/// Disk limit that refuses nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoLimit;

impl DiskLimit for NoLimit {
    fn allows(&self, _bytes: u64) -> bool {
        true
    }
}

/// Observer that ignores everything.
#[derive(Debug, Clone, Copy)]
pub struct NoObserver;

impl Observer for NoObserver {}
