//! The I/O worker: serves files, watches and ports of the sandbox to the server.
//!
//! File operations block, but the agent has one thread and may not start others, because it forks. So it starts
//! this program again as a worker, which never forks. The worker opens two gRPC streams to the server, the *lanes*:
//! `BULK` carries the content of files, so that no request on `INTERACTIVE` waits for it. Each request is one blocking
//! task, or for watches and ports an asynchronous one. The worker exits when the server closes a lane.
//!
//! The worker gets a ticket that is valid for its two lanes only, and not the token of the agent: commands run as the
//! same user and can attach to a new process before it has made itself undumpable. With the ticket they could only
//! forge the content of files and ports, which they can change in the sandbox anyway.

mod batch;
mod channel;
mod copy;
mod failure;
mod journal;
mod lane;
mod list;
mod path;
mod ports;
mod read;
mod remove;
mod request;
mod tree;
mod watch;
mod write;

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::process::Pid;
use workspace_agent_protocol::scheduling::restore_time_slice;
use workspace_agent_protocol::start_parameters::StartParameters;
use workspace_agent_protocol::v1::IoLane;

use crate::script;
use crate::server_connection::ConnectionParameters;
use crate::supervisor;
use crate::transport::Transport;

/// Operations of the worker, which the agent announces to the server under the name `io` when it registers. `trees` are
/// directories with their content, as archives.
pub(crate) const ANNOUNCED_OPERATIONS: &str = "files,trees,watch,ports";
/// Option of the command line that starts a worker. Its value is the descriptor of the parameters: the ticket alone
/// with the option `--socket`, otherwise [`StartParameters`] with the ticket as token.
pub(crate) const FD_OPTION: &str = "--io-fd";
/// File of this program.
const PROGRAM: &CStr = c"/proc/self/exe";
/// Maximum number of blocking tasks. The server sends at most 16 transfers at a time (`TRANSFERS_MAX` in its module
/// `io::worker`), which may wait for their clients. 8 threads are left for other requests, which never do.
const BLOCKING_TASKS_MAX: usize = 24;
/// Stack size of a blocking thread, in bytes.
const STACK_SIZE: usize = 256 << 10;

/// Starts a worker, and returns its PID. The caller reaps it.
pub(crate) fn start(connection: &ConnectionParameters, ticket: Vec<u8>) -> io::Result<Pid> {
    let mut arguments = vec![PROGRAM.to_owned(), c"--sandbox".to_owned(), c_string(&connection.sandbox)?];
    arguments.extend([c_string(FD_OPTION)?, c"0".to_owned()]);
    let parameters = match &connection.transport {
        Transport::Socket(path) => {
            arguments.extend([c"--socket".to_owned(), c_string(path)?]);
            ticket
        }
        Transport::Network(network) => {
            let parameters = StartParameters { token: ticket, ..network.parameters().clone() };
            parameters.to_bytes()
        }
    };
    // Programs of the sandbox can take over a worker that is just starting, so it must have no descriptor that they may
    // not have. In particular it does not inherit the standard error of the agent, a log file on the server's disk that
    // counts against no limit of the sandbox.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // Standard input has the parameters. Standard output is the journal: a memory file in which a worker records the
    // temporary names of files that it is replacing, so that the next worker removes them if this one is killed.
    let streams = [script::create_memfd(&parameters)?, journal::file_for_workers()?, null.into()];
    fork_and_execute(&arguments, &streams)
}

fn c_string(value: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(value.as_ref().as_bytes())?)
}

/// Executes this program in a new process with these standard streams. If that fails, the process exits.
///
/// Unlike `std::process::Command`, it does not wait until the process has executed the program: other programs of the
/// sandbox can stop the process before that, and the agent with it.
fn fork_and_execute(arguments: &[CString], streams: &[OwnedFd; 3]) -> io::Result<Pid> {
    let arguments: Vec<_> =
        arguments.iter().map(|argument| argument.as_ptr()).chain([std::ptr::null()]).collect();
    let no_environment = [std::ptr::null()];
    // SAFETY: this process has a single thread, so the child is a complete copy and may call any function. The strings
    // are NUL-terminated, and the arrays end with a null pointer.
    let pid = unsafe {
        match libc::fork() {
            0 => {
                supervisor::reset_signals();
                for (target, stream) in (0..).zip(streams) {
                    if libc::dup2(stream.as_raw_fd(), target) != target {
                        libc::_exit(127);
                    }
                }
                if libc::chdir(c"/".as_ptr()) == 0 {
                    libc::execve(PROGRAM.as_ptr(), arguments.as_ptr(), no_environment.as_ptr());
                }
                libc::_exit(127)
            }
            -1 => return Err(io::Error::last_os_error()),
            pid => pid,
        }
    };
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork returned an invalid PID"))
}

/// Runs the worker until a lane is closed or fails.
pub(crate) fn run(connection: &ConnectionParameters) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The agent has a short time slice for the latency of commands, which transfers must not delay.
    drop(restore_time_slice());
    journal::open()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_TASKS_MAX)
        .thread_stack_size(STACK_SIZE)
        .build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = lane::run(connection, IoLane::Interactive) => ended,
            ended = lane::run(connection, IoLane::Bulk) => ended,
        }
    });
    // An exit while a file is being replaced would leave its temporary name.
    write::finish_replacements();
    // Does not wait for blocking tasks, which may hang in system calls.
    runtime.shutdown_background();
    ended.map_err(io::Error::other)
}
