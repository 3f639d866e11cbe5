//! The guest agent: the first process of a sandbox.
//!
//! It dials the server, says which sandbox it speaks for, and runs what it is asked to. It has one thread, so
//! that it may fork without care for others; `supervise.rs` says why it does. As the first process it also
//! takes in what others leave behind.

mod command;
mod connection;
mod guest;
mod reaper;
mod stream;
mod supervise;
mod tree;
mod usage;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::connection::Server;
use crate::guest::Guest;

const USAGE: &str = "usage: workspace-agent --sandbox ID --socket PATH --token-fd N --output-fd N";

/// What it is told when it is started. Descriptors, so that nothing inside can read them: not the environment,
/// not a file.
struct Arguments {
    sandbox: String,
    socket: PathBuf,
    token: OwnedFd,
    output: OwnedFd,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let (mut sandbox, mut socket, mut token, mut output) = (None, None, None, None);
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.as_str() {
                "--sandbox" => sandbox = Some(value),
                "--socket" => socket = Some(PathBuf::from(value)),
                "--token-fd" => token = Some(descriptor(&value)?),
                "--output-fd" => output = Some(descriptor(&value)?),
                _ => return None,
            }
        }
        Some(Self { sandbox: sandbox?, socket: socket?, token: token?, output: output? })
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
    let mut token = Vec::new();
    File::from(arguments.token).read_to_end(&mut token)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let guest = Guest::new(arguments.output);
        reaper::start(&guest)?;
        let server = Server { socket: arguments.socket, sandbox: arguments.sandbox, token };
        connection::keep(&server, &guest).await
    })
}
