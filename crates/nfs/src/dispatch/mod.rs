//! Execution of a call: program, version, procedure, access, and the reply.

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

use self::caller::enter;
pub(crate) use self::caller::{Caller, Unanswered};
pub(crate) use self::replay::ReplayCache;
use self::replay::Seen;
use self::request::{Failure, Request, open_handle, peek_handle};
use crate::hooks::Outcome;
use crate::operation::Operation;
use crate::wire::{
    Accepted, Call, CallError, Decoder, Encode, MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION,
    RECORD_MAX, Status, XdrError, begin_reply, finish_reply, put_auth_error, put_version_mismatch,
};

/// Executes a call and writes the reply with its record mark.
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

/// Returns the length that a reply may have, as far as it can be more than a few hundred bytes.
fn reply_len(operation: Operation, arguments: Decoder<'_>) -> Result<usize, XdrError> {
    match operation {
        Operation::Read => io::reply_len(arguments),
        Operation::ReadDir => list::readdir_reply_len(arguments),
        Operation::ReadDirPlus => list::readdirplus_reply_len(arguments),
        // As long as there are exports.
        Operation::Dump | Operation::Export => Ok(RECORD_MAX),
        _ => Ok(0),
    }
}

/// Executes a call and writes the reply, or writes that of the same call before.
fn run_once(
    caller: &mut Caller<'_>,
    call: Call,
    operation: Operation,
    record: &[u8],
    arguments: &mut Decoder<'_>,
    reply: &mut Vec<u8>,
) -> Outcome {
    let context = caller.context;
    // A call with a forged or stale handle changes nothing, and takes no place from the replies to those that do.
    let handle = peek_handle(&context.key, *arguments);
    let Some(handle) = handle.filter(|handle| context.registry.has_generation(handle.generation)) else {
        return run(caller, call, operation, arguments, reply);
    };
    let client = caller.client.ip();
    match context.replies.begin(handle.generation, client, call.xid, record, &mut *caller.before_waiting) {
        Seen::New(ticket) => {
            let outcome = run(caller, call, operation, arguments, reply);
            if is_final(outcome) {
                ticket.finish(reply);
            }
            outcome
        }
        Seen::Before(first) => {
            reply.clear();
            reply.extend_from_slice(&first);
            Outcome::Replayed
        }
        Seen::InProgress => {
            begin_reply(reply, call.xid, Accepted::Success);
            put_failure(reply, operation, Status::Jukebox)
        }
    }
}

/// Returns true if the result of a call must be the same when it is sent again.
fn is_final(outcome: Outcome) -> bool {
    // With the first, the client was told to try again. The others say that nothing was done.
    let others = [Status::Jukebox, Status::Stale, Status::BadHandle];
    !others.iter().any(|status| outcome == Outcome::Failed(*status as u32))
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

/// Executes a call and writes the reply.
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
        on_files(caller, operation, arguments, reply).map(|()| outcome(&reply[start..]))
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

/// Executes an operation on files.
fn on_files(
    caller: &mut Caller<'_>,
    operation: Operation,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let beginning = *arguments;
    let ((volume, id), _access) = enter(caller, |caller| {
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

type Procedure = fn(&mut Request<'_>, &mut Decoder<'_>, &mut Vec<u8>) -> Result<(), Failure>;

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
        // The others have no handle.
        _ => attributes::getattr,
    }
}

/// Writes the result of an operation that failed before anything else of its result was known.
fn put_failure(out: &mut Vec<u8>, operation: Operation, status: Status) -> Outcome {
    out.put_u32(status as u32);
    for _ in 0..absent_attributes(operation) {
        out.put_bool(false);
    }
    Outcome::Failed(status as u32)
}

/// Number of optional attributes in a failure, all of which are absent. `wcc_data` has two.
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
