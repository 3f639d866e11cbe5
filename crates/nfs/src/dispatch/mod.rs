//! Execution of a call: program, version, procedure, access, and the reply.

use std::net::SocketAddr;

use crate::hooks::Outcome;
use crate::operation::Operation;
use crate::server::Context;
use crate::wire::{
    Accepted, Call, CallError, Decoder, MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION, begin_reply,
    finish_reply, put_auth_error, put_version_mismatch,
};

/// Client and server of a call.
pub(crate) struct Caller<'a> {
    pub(crate) context: &'a Context,
    pub(crate) client: SocketAddr,
    /// Called before anything that may take long.
    pub(crate) before_waiting: &'a mut dyn FnMut(),
}

/// Record that is not a call. The connection cannot be used any more.
#[derive(Debug)]
pub(crate) struct Malformed;

/// Executes a call and writes the reply with its record mark.
pub(crate) fn execute(
    caller: &mut Caller<'_>,
    record: &[u8],
    reply: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let mut arguments = Decoder::new(record);
    match Call::decode(&mut arguments) {
        Ok(call) => execute_call(caller, call, arguments, reply),
        Err(CallError::Malformed) => return Err(Malformed),
        Err(CallError::RpcVersion { xid }) => put_version_mismatch(reply, xid),
        Err(CallError::Auth { xid, error }) => put_auth_error(reply, xid, error),
    }
    finish_reply(reply);
    Ok(())
}

fn execute_call(caller: &mut Caller<'_>, call: Call, _arguments: Decoder<'_>, reply: &mut Vec<u8>) {
    let operation = match operation(call) {
        Ok(operation) => operation,
        Err(status) => return begin_reply(reply, call.xid, status),
    };
    begin_reply(reply, call.xid, Accepted::Success);
    caller.context.observer.operation(operation, Outcome::Done);
}

fn operation(call: Call) -> Result<Operation, Accepted> {
    let (version, operation) = match call.program {
        NFS_PROGRAM => (NFS_VERSION, Operation::of_nfs(call.procedure)),
        MOUNT_PROGRAM => (MOUNT_VERSION, Operation::of_mount(call.procedure)),
        _ => return Err(Accepted::ProgramUnavailable),
    };
    if call.version != version {
        return Err(Accepted::ProgramMismatch(version, version));
    }
    operation.ok_or(Accepted::ProcedureUnavailable)
}
