//! Caller of an operation, and its way to the files of an export.

use std::net::SocketAddr;

use crate::acting;
use crate::buffers::is_large;
use crate::hooks::GateGuard;
use crate::server::{Context, InUse, UsedExport};
use crate::table::FileId;
use crate::wire::Status;

/// Reason why a record has no reply. The connection cannot be used any more.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The record is not a call.
    Malformed,
    /// The server stops.
    Stopping,
}

/// Client and server of a call.
pub(crate) struct Caller<'a> {
    pub(crate) context: &'a Context,
    pub(crate) client: SocketAddr,
    pub(crate) used_export: &'a UsedExport,
    /// Called before anything that may take long.
    pub(crate) before_waiting: &'a mut dyn FnMut(),
    /// Waits until a large reply may be held in memory. Returns false if the server stops.
    pub(crate) admit_large_reply: &'a mut dyn FnMut() -> bool,
}

impl Caller<'_> {
    /// Makes room for a reply, for which it may have to wait. Call it before a gate is passed: whoever closes a gate
    /// must not wait for other clients.
    pub(super) fn reserve_reply(&mut self, reply: &mut Vec<u8>, length: usize) -> Result<(), Unanswered> {
        if is_large(length) {
            (self.before_waiting)();
            if !(self.admit_large_reply)() {
                return Err(Unanswered::Stopping);
            }
        }
        self.context.buffers.reserve(reply, length);
        Ok(())
    }
}

/// Finds an export, waits for its gate, and takes its identity on this thread.
///
/// Nobody waits with the volume in use: whoever has closed the gate may be waiting for its users before it replaces the
/// directory. So the export is found again behind the gate.
pub(super) fn enter<E: From<Status>>(
    caller: &mut Caller<'_>,
    mut find: impl FnMut(&Caller<'_>) -> Result<(InUse, FileId), E>,
) -> Result<((InUse, FileId), GateGuard), E> {
    let mut found = find(caller)?;
    let rules = found.0.shared_rules();
    let access = match rules.gate.try_shared() {
        Some(access) => access,
        None => {
            drop(found);
            (caller.before_waiting)();
            let access = rules.gate.shared(caller.context.limits.gate_timeout).ok_or(Status::Jukebox)?;
            found = find(caller)?;
            access
        }
    };
    if let Err(error) = acting::act_as(rules.identity) {
        tracing::error!(%error, export = rules.name, "failed to take the identity of an NFS export");
        return Err(Status::ServerFault.into());
    }
    Ok((found, access))
}
