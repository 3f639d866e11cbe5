//! Hooks by which the owner of exported directories takes part in the operations on them.
//!
//! They are called on the threads of connections, which may block. None is called with a lock held.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

use crate::operation::Operation;

/// Shared access to a directory, until it is dropped. It is dropped on the thread that got it.
pub type GateGuard = Box<dyn Any>;

/// Gate of an export: every operation on files holds it shared. Its owner holds it exclusively while it freezes,
/// reads or replaces the directory.
pub trait Gate: Send + Sync {
    /// Returns shared access at once, or `None` if that needs waiting.
    fn try_shared(&self) -> Option<GateGuard>;

    /// Waits for shared access, at most for `max_wait`. `None` makes the client try again later (JUKEBOX).
    fn shared(&self, max_wait: Duration) -> Option<GateGuard>;

    /// Called with shared access before files are changed.
    fn changing(&self) {}
}

/// Limit of the disk space that an export may use, where no quota of the kernel enforces it.
pub trait DiskLimit: Send + Sync {
    /// Returns false if no more may be written; the client then gets DQUOT. `bytes` is the length of a write, or
    /// zero if an entry of a directory is to be created.
    fn allows(&self, bytes: u64) -> bool;
}

/// Direction of file content.
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
    /// The reply of the first call was sent again.
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
    /// There were too many connections.
    Connections,
    /// The client sent something that is not RPC.
    MalformedRecord,
}

impl RefusalReason {
    /// All reasons, for metrics that begin at zero.
    pub const ALL: [Self; 6] = [
        Self::Address,
        Self::Secret,
        Self::UnknownExport,
        Self::ForgedHandle,
        Self::Connections,
        Self::MalformedRecord,
    ];

    /// Position in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name in logs: lower case, words separated by underscores.
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
    /// Name of the export, where one was named. For a mount it is the name that the client sent.
    pub export: Option<&'a str>,
    /// Reason of the refusal.
    pub reason: RefusalReason,
}

/// Observer of a server, for metrics and the audit log. It is called on the path of every operation, so it must
/// be quick.
pub trait Observer: Send + Sync {
    /// Called after every operation, before its reply is sent.
    fn operation(&self, operation: Operation, outcome: Outcome) {
        let _ = (operation, outcome);
    }

    /// Called for the content of every READ and WRITE that succeeded.
    fn bytes(&self, direction: Direction, count: u64) {
        let _ = (direction, count);
    }

    /// Called after a client got the root handle of an export, unless its address has it mounted already. While too many
    /// mounts are remembered, it is called for each of the others again.
    fn mounted(&self, event: MountEvent<'_>) {
        let _ = event;
    }

    /// Called after a client said that it does not use an export any more.
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

/// Limit that allows everything.
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
