//! The guest agent: the first process of a sandbox.
//!
//! It dials the server, says which sandbox it speaks for, and runs what it is asked to. It has one thread, so
//! that it may fork without care for others; `supervise.rs` says why it does. As the first process it also
//! takes in what others leave behind.

mod buffer;
mod command;
mod connection;
mod guest;
mod handover;
mod output;
mod protect;
mod reaper;
mod script;
mod stream;
mod supervise;
mod tree;
mod trust;
mod usage;
mod way;

use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;

use workspace_agent_protocol::scheduling::shorten_slice;

use crate::connection::Server;
use crate::guest::Guest;
use crate::handover::Handover;
use crate::way::{Network, Way};

const USAGE: &str =
    "usage: workspace-agent --sandbox ID [--socket PATH] (--token-fd N [--output-fd N] | --start PATH)";

/// What it is told when it is started. What it is given comes by descriptors or a socket, so that nothing inside
/// can read it: not in the environment, not in a file.
struct Arguments {
    sandbox: String,
    /// Where the server is; if not here, it is told what else it is given.
    socket: Option<PathBuf>,
    handover: Handover,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let (mut sandbox, mut socket, mut token, mut output, mut start) = (None, None, None, None, None);
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.as_str() {
                "--sandbox" => sandbox = Some(value),
                "--socket" => socket = Some(PathBuf::from(value)),
                "--token-fd" => token = Some(descriptor(&value)?),
                "--output-fd" => output = Some(descriptor(&value)?),
                "--start" => start = Some(PathBuf::from(value)),
                _ => return None,
            }
        }
        let handover = match (token, output, start) {
            (Some(token), output, None) => Handover::Descriptors { token, output },
            (None, None, Some(path)) => Handover::Socket(path),
            _ => return None,
        };
        Some(Self { sandbox: sandbox?, socket, handover })
    }
}

fn descriptor(value: &str) -> Option<OwnedFd> {
    let number: RawFd = value.parse().ok().filter(|number| *number > 2)?;
    // What this program starts must not have it. A number nobody opened is refused here, before it is owned.
    // SAFETY: it is borrowed for this call only.
    rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, rustix::io::FdFlags::CLOEXEC).ok()?;
    // SAFETY: whoever started this program left the descriptor to it, and nobody else here knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
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
    // Others inside run as the same user: without this they could read the token from its memory.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Where it is not the first process, it takes in what others leave behind all the same.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Without it, commands start later while others keep the processors busy.
    if let Err(error) = shorten_slice() {
        eprintln!("workspace-agent: cannot ask for a short slice of processor time: {error}");
    }
    let given = arguments.handover.take()?;
    let (way, token) = match arguments.socket {
        Some(socket) => (Way::Socket(socket), given.bytes),
        None => {
            let given = workspace_agent_protocol::handover::Handover::from_bytes(&given.bytes)?;
            (Way::Network(Network::of(&given)?), given.token)
        }
    };
    let server = Server { way, sandbox: arguments.sandbox, token };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let guest = Guest::new(given.output);
        reaper::start(&guest)?;
        connection::keep(&server, &guest).await
    })
}
