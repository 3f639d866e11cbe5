//! Execution of an RPC call: decodes the header, finds the procedure, enters the export and writes the reply.
//!
//! An operation on files needs a *volume* (the directory of an export with the table of its file handles), and shared
//! access at the gate, by which the owner of the directory excludes operations for a while. Replies to calls that
//! change something are kept, and sent again when the client repeats the call.

mod attributes;
mod caller;
mod create;
mod encode;
mod info;
mod io;
mod list;
mod lookup;
mod mount;
mod remove;
mod replay;
mod request;

use self::caller::enter_export;
pub(crate) use self::caller::{Caller, Unanswered};
use self::replay::CallState;
pub(crate) use self::replay::ReplayCache;
use self::request::{Failure, Request, open_handle, peek_handle};
use crate::hooks::Outcome;
use crate::operation::Operation;
use crate::wire::{
    Accepted, Call, CallError, Decoder, Encode, MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION,
    RECORD_MAX, Status, XdrError, begin_reply, finish_reply, put_auth_error, put_version_mismatch,
};

/// Executes the call in a record, and writes the reply with its record mark.
pub(crate) fn execute(caller: &mut Caller<'_>, record: &[u8], reply: &mut Vec<u8>) -> Result<(), Unanswered> {
    let mut arguments = Decoder::new(record);
    match Call::decode(&mut arguments) {
        Ok(call) => execute_call(caller, call, record, arguments, reply)?,
        Err(CallError::Malformed) => return Err(Unanswered::Malformed),
        Err(CallError::RpcVersion { xid }) => put_version_mismatch(reply, xid),
        Err(CallError::Auth { xid, error }) => put_auth_error(reply, xid, error),
    }
    finish_reply(reply);
    Ok(())
}

/// Executes a call whose header was decoded. `record` is all of the call; `arguments` is the part after the header.
fn execute_call(
    caller: &mut Caller<'_>,
    call: Call,
    record: &[u8],
    mut arguments: Decoder<'_>,
    reply: &mut Vec<u8>,
) -> Result<(), Unanswered> {
    let operation = match operation(call) {
        Ok(operation) => operation,
        Err(status) => {
            begin_reply(reply, call.xid, status);
            return Ok(());
        }
    };
    caller.reserve_reply(reply, reply_len(operation, arguments).unwrap_or(0))?;
    let outcome = if operation.is_replayed() {
        run_once(caller, call, operation, record, &mut arguments, reply)
    } else {
        run(caller, call, operation, &mut arguments, reply)
    };
    caller.context.observer.operation(operation, outcome);
    Ok(())
}

/// Returns the maximum length of a reply in bytes; zero for operations whose replies have at most a few hundred bytes.
fn reply_len(operation: Operation, arguments: Decoder<'_>) -> Result<usize, XdrError> {
    match operation {
        Operation::Read => io::reply_len(arguments),
        Operation::ReadDir => list::readdir_reply_len(arguments),
        Operation::ReadDirPlus => list::readdirplus_reply_len(arguments),
        // Their lists grow with the number of mounts and exports.
        Operation::Dump | Operation::Export => Ok(RECORD_MAX),
        _ => Ok(0),
    }
}

/// Executes a call whose reply is kept, and writes the reply. Writes the kept reply if the client has sent the same
/// call before.
fn run_once(
    caller: &mut Caller<'_>,
    call: Call,
    operation: Operation,
    record: &[u8],
    arguments: &mut Decoder<'_>,
    reply: &mut Vec<u8>,
) -> Outcome {
    let context = caller.context;
    // A call with a forged or stale handle changes nothing. Its reply is not kept, so it displaces no other.
    let handle = peek_handle(&context.key, *arguments);
    let Some(handle) = handle.filter(|handle| context.registry.has_generation(handle.generation)) else {
        return run(caller, call, operation, arguments, reply);
    };
    let client = caller.client.ip();
    match context.replies.begin(handle.generation, client, call.xid, record, &mut *caller.before_waiting) {
        CallState::New(pending) => {
            let outcome = run(caller, call, operation, arguments, reply);
            if is_final(outcome) {
                pending.finish(reply);
            }
            outcome
        }
        CallState::Answered(first) => {
            reply.clear();
            reply.extend_from_slice(&first);
            Outcome::Replayed
        }
        CallState::InProgress => {
            begin_reply(reply, call.xid, Accepted::Success);
            put_failure(reply, operation, Status::Jukebox)
        }
    }
}

/// Returns true if the reply must be kept for a repeated call.
fn is_final(outcome: Outcome) -> bool {
    // After JUKEBOX the client tries again and needs a new reply. With the other two, nothing was changed.
    let not_kept = [Status::Jukebox, Status::Stale, Status::BadHandle];
    !not_kept.iter().any(|status| outcome == Outcome::Failed(*status as u32))
}

/// Returns the operation of a call, or the RPC error for an unknown program, version or procedure.
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

/// Executes a call and writes the reply, without a look at kept replies.
fn run(
    caller: &mut Caller<'_>,
    call: Call,
    operation: Operation,
    arguments: &mut Decoder<'_>,
    reply: &mut Vec<u8>,
) -> Outcome {
    begin_reply(reply, call.xid, Accepted::Success);
    let start = reply.len();
    let result = if call.program == MOUNT_PROGRAM {
        let done = mount::execute(caller, operation, arguments, reply);
        done.map(|status| status.map_or(Outcome::Done, |status| Outcome::Failed(status as u32)))
    } else if operation == Operation::Null {
        Ok(Outcome::Done)
    } else {
        run_on_files(caller, operation, arguments, reply).map(|()| outcome(&reply[start..]))
    };
    match result {
        Ok(outcome) => outcome,
        Err(Failure::Garbage) => {
            begin_reply(reply, call.xid, Accepted::GarbageArguments);
            Outcome::Failed(Status::Inval as u32)
        }
        Err(Failure::Status(status)) => {
            reply.truncate(start);
            put_failure(reply, operation, status)
        }
    }
}

/// Reads the status at the beginning of a result.
fn outcome(result: &[u8]) -> Outcome {
    match Decoder::new(result).u32() {
        Ok(0) | Err(_) => Outcome::Done,
        Ok(status) => Outcome::Failed(status),
    }
}

/// Executes an NFS operation on files.
fn run_on_files(
    caller: &mut Caller<'_>,
    operation: Operation,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let beginning = *arguments;
    let ((volume, id), _access) = enter_export(caller, |caller| {
        // `enter_export` may call this closure twice.
        *arguments = beginning;
        open_handle(caller, arguments)
    })?;
    if operation.changes_files() {
        volume.rules().gate.changing();
    }
    let result = caller.with_request(&volume, id, |request| procedure(operation)(request, arguments, out));
    volume.save_handles();
    result
}

/// Function that executes an operation on files and writes its result.
type Procedure = fn(&mut Request<'_>, &mut Decoder<'_>, &mut Vec<u8>) -> Result<(), Failure>;

/// Returns the function of an operation.
fn procedure(operation: Operation) -> Procedure {
    match operation {
        Operation::SetAttr => attributes::setattr,
        Operation::Lookup => lookup::lookup,
        Operation::Access => attributes::access,
        Operation::ReadLink => lookup::readlink,
        Operation::Read => io::read,
        Operation::Write => io::write,
        Operation::Create => create::create,
        Operation::MkDir => create::mkdir,
        Operation::SymLink => create::symlink,
        Operation::MkNod => create::mknod,
        Operation::Remove => remove::remove,
        Operation::RmDir => remove::rmdir,
        Operation::Rename => remove::rename,
        Operation::Link => remove::link,
        Operation::ReadDir => list::readdir,
        Operation::ReadDirPlus => list::readdirplus,
        Operation::FsStat => info::fsstat,
        Operation::FsInfo => info::fsinfo,
        Operation::PathConf => info::pathconf,
        Operation::Commit => io::commit,
        // GETATTR. NULL and the procedures of MOUNT, which have no handle, do not come here.
        _ => attributes::getattr,
    }
}

/// Writes the result of an operation that failed before it read any attributes.
fn put_failure(out: &mut Vec<u8>, operation: Operation, status: Status) -> Outcome {
    out.put_u32(status as u32);
    for _ in 0..absent_attributes(operation) {
        out.put_bool(false);
    }
    Outcome::Failed(status as u32)
}

/// Returns the number of optional attributes in the result of a failed operation. `wcc_data` has two.
fn absent_attributes(operation: Operation) -> usize {
    match operation {
        Operation::GetAttr => 0,
        Operation::SetAttr
        | Operation::Write
        | Operation::Create
        | Operation::MkDir
        | Operation::SymLink
        | Operation::MkNod
        | Operation::Remove
        | Operation::RmDir
        | Operation::Commit => 2,
        Operation::Rename => 4,
        Operation::Link => 3,
        _ => 1,
    }
}
