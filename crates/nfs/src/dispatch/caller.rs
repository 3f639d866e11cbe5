//! Caller of an operation, and its way to the files of an export.

use std::net::SocketAddr;

use crate::acting;
use crate::hooks::GateGuard;
use crate::server::Context;
use crate::volume::Volume;
use crate::wire::Status;

/// Client and server of a call.
pub(crate) struct Caller<'a> {
    pub(crate) context: &'a Context,
    pub(crate) client: SocketAddr,
    /// Called before anything that may take long.
    pub(crate) before_waiting: &'a mut dyn FnMut(),
}

/// Prepares this thread for the files of an export, and waits for its gate.
pub(super) fn enter(caller: &mut Caller<'_>, volume: &Volume) -> Result<GateGuard, Status> {
    let rules = volume.rules();
    if let Err(error) = acting::act_as(rules.identity) {
        tracing::error!(%error, export = rules.name, "failed to take the identity of an NFS export");
        return Err(Status::ServerFault);
    }
    if let Some(access) = rules.gate.try_shared() {
        return Ok(access);
    }
    (caller.before_waiting)();
    rules.gate.shared(caller.context.limits.gate_timeout).ok_or(Status::Jukebox)
}
