//! The guest agent: the first process of a sandbox.
//!
//! It connects to the server, registers for its sandbox, and runs the requested commands. It has a single
//! thread, so that it can fork safely; `program_start.rs` explains why it forks. As the first process it also
//! reaps orphans.
//!
//! - `agent_state`, `command`, `output`, `buffer`: the commands that run, and their output.
//! - `connection`, `server_connection`, `transport`, `tls`, `parameters`: the connection to the server.
//! - `program_start`, `supervisor`, `idle_supervisors`, `program_image`, `inherited_attributes`, `path_search`,
//!   `script`, `stream`: starting a program under a supervisor, the process that adopts its orphans.
//! - `user`, `privileges`, `command_seccomp`: users, capabilities and system calls of commands.
//! - `process_tree`, `reaper`, `usage`: processes of the sandbox.
//! - `io`: the I/O worker, a second process that serves files and ports.

mod agent_state;
mod buffer;
mod clock;
mod command;
mod command_seccomp;
mod connection;
mod idle_supervisors;
mod inherited_attributes;
mod io;
mod output;
mod parameters;
mod path_search;
mod privileges;
mod process_tree;
mod program_image;
mod program_start;
mod reaper;
mod script;
mod server_connection;
mod stream;
mod supervisor;
mod tls;
mod transport;
mod usage;
mod user;

use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;

use workspace_agent_protocol::scheduling::shorten_time_slice;
use workspace_agent_protocol::start_parameters::StartParameters;

use crate::agent_state::AgentState;
use crate::parameters::ParameterSource;
use crate::privileges::Privileges;
use crate::server_connection::ConnectionParameters;
use crate::transport::{Network, Transport};

const USAGE: &str =
    "usage: workspace-agent --sandbox ID [--socket PATH] (--token-fd N [--output-fd N] | --start SOCKET)";

/// Command line. Secrets are passed by file descriptor or socket, so that commands cannot read them from the
/// environment or a file.
struct Arguments {
    /// Id of the sandbox.
    sandbox: String,
    /// Path of the server's socket; if it is `None`, the start parameters contain the server's addresses.
    socket: Option<PathBuf>,
    /// Source of the start parameters: token, directory of output files, addresses of the server.
    parameters: ParameterSource,
    role: Role,
}

/// Role of this process.
enum Role {
    /// First process of the sandbox.
    Agent,
    /// I/O worker: a second process of this program, which serves files and ports to the server, since file operations
    /// would block the agent's only thread.
    IoWorker,
}

impl Arguments {
    fn parse(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let (mut sandbox, mut socket, mut token) = (None, None, None);
        let (mut output_directory, mut parameter_socket) = (None, None);
        let mut role = Role::Agent;
        while let Some(option) = args.next() {
            let value = args.next()?;
            match option.as_str() {
                "--sandbox" => sandbox = Some(value),
                "--socket" => socket = Some(PathBuf::from(value)),
                "--token-fd" => token = Some(inherited_fd(&value)?),
                "--output-fd" => output_directory = Some(inherited_fd(&value)?),
                "--start" => parameter_socket = Some(PathBuf::from(value)),
                // The agent starts its I/O worker with this option. Instead of the token, the worker has a ticket,
                // which admits only its two connections. It is on standard input.
                io::FD_OPTION => (token, role) = (Some(take_fd(value.parse().ok()?)?), Role::IoWorker),
                _ => return None,
            }
        }
        let parameters = match (token, output_directory, parameter_socket) {
            (Some(token), output_directory, None) => ParameterSource::Descriptors { token, output_directory },
            (None, None, Some(path)) => ParameterSource::Socket(path),
            _ => return None,
        };
        Some(Self { sandbox: sandbox?, socket, parameters, role })
    }
}

/// Takes ownership of a file descriptor that the parent process passed. `None` if it is invalid, a standard stream, or
/// not open.
fn inherited_fd(value: &str) -> Option<OwnedFd> {
    take_fd(value.parse().ok().filter(|fd| *fd > 2)?)
}

/// Takes ownership of a file descriptor by its number; `None` if it is not open.
fn take_fd(fd: RawFd) -> Option<OwnedFd> {
    // Commands must not inherit the descriptor. This also fails if it is not open.
    // SAFETY: the descriptor is borrowed for this call only.
    rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, rustix::io::FdFlags::CLOEXEC).ok()?;
    // SAFETY: the parent passed the descriptor to this program, and nothing else here uses it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workspace-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> std::io::Result<()> {
    // Commands run as the same user: without this they could read the token from the agent's memory.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // The agent must adopt orphans even if it is not PID 1.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Reduces the latency of commands on a busy machine.
    if let Err(error) = shorten_time_slice() {
        eprintln!("workspace-agent: failed to request a short scheduler slice: {error}");
    }
    let parameters = arguments.parameters.receive()?;
    // For a Unix socket, the bytes are only the token.
    let (transport, token) = match arguments.socket {
        Some(socket) => (Transport::Socket(socket), parameters.bytes),
        None => {
            let parameters = StartParameters::from_bytes(&parameters.bytes)?;
            (Transport::Network(Network::from_parameters(&parameters)?), parameters.token)
        }
    };
    let connection = ConnectionParameters { transport, sandbox: arguments.sandbox, token };
    match arguments.role {
        Role::Agent => run_agent(&connection, parameters.output_directory),
        Role::IoWorker => io::run(&connection),
    }
}

/// Runs the agent. `output_directory` is that of output files; `None` if output is sent over the connection.
fn run_agent(connection: &ConnectionParameters, output_directory: Option<OwnedFd>) -> std::io::Result<()> {
    let privileges = Privileges::read_and_lower()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let agent = AgentState::new(output_directory, privileges);
        reaper::start(&agent)?;
        connection::run(connection, &agent).await
    })
}
