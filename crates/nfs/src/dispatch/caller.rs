//! Caller of an operation, and entry to the files of an export.
//!
//! Every operation needs shared access at the *gate* of the export, by which the owner of the directory excludes
//! operations while it freezes or replaces the directory. A *volume* is that directory with the table of its file
//! handles. It counts as in use while an operation has a [`VolumeInUse`].

use std::net::SocketAddr;

use crate::acting;
use crate::buffers::is_large;
use crate::hooks::GateGuard;
use crate::server::{Context, UsedExport, VolumeInUse};
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

/// Client of a call, with the state and the functions of its connection and its server that the call needs.
pub(crate) struct Caller<'a> {
    pub(crate) context: &'a Context,
    pub(crate) client: SocketAddr,
    /// Export that the connection used last.
    pub(crate) used_export: &'a UsedExport,
    /// Called before anything that may take long, so that another thread reads the next request of the connection.
    pub(crate) before_waiting: &'a mut dyn FnMut(),
    /// Waits for the permit to hold a large reply in memory. Returns false if the server stops.
    pub(crate) admit_large_reply: &'a mut dyn FnMut() -> bool,
}

impl Caller<'_> {
    /// Reserves the buffer of a reply. Waits for a permit if the reply is large; fails if the server stops. Call it
    /// before [`enter_export`]: a thread that has shared access must not wait for other clients, because the owner of
    /// the directory may wait for the end of that access.
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

/// Finds the volume of a request by calling `find`, waits for shared access at its gate, and makes this thread act as
/// the user of the export. Fails with JUKEBOX after the timeout of the gate.
///
/// If the gate is closed, the volume is dropped before the wait, and `find` is called again after it. Otherwise the
/// owner of the directory, who has closed the gate, could not replace the directory: the replacement waits until the
/// volume is not in use.
pub(super) fn enter_export<E: From<Status>>(
    caller: &mut Caller<'_>,
    mut find: impl FnMut(&Caller<'_>) -> Result<(VolumeInUse, FileId), E>,
) -> Result<((VolumeInUse, FileId), GateGuard), E> {
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
