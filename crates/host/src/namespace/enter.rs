//! Running a program in the namespaces of a holder: this program again, which goes there and becomes the other.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use crate::error::{Doing as _, HostError, Result};
use crate::helper::protocol::SELF_EXEC_ARG;
use crate::namespace::holder::Holder;
use crate::process::Process;
use crate::resources::limits;

/// What follows [`SELF_EXEC_ARG`] in such a start: then the holder, the program and its words.
pub(crate) const ENTER: &str = "enter";

/// See [`overlay::command`](crate::overlay::command).
pub(crate) fn command(holder: &Holder, program: &OsStr) -> Command {
    let mut command = match holder {
        Holder::Machine => Command::new(program),
        Holder::Process(held) => {
            let mut command = Command::new("/proc/self/exe");
            command.args([SELF_EXEC_ARG, ENTER, &held.word()]).arg(program);
            command
        }
    };
    limits::usual_open_files(&mut command);
    command
}

/// What the process so started does; comes back only with what went wrong.
pub(crate) fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(3).collect();
    match become_program(&words) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn become_program(words: &[OsString]) -> Result<std::convert::Infallible> {
    let [holder, program, words @ ..] = words else {
        return Err(HostError::other("no program to run"));
    };
    let held = holder.to_str().and_then(Process::from_word);
    let held = held.ok_or_else(|| HostError::other("not a holder"))?;
    Holder::Process(held).join()?;
    Err(Command::new(program).args(words).exec()).doing(format!("run {}", program.display()))
}
