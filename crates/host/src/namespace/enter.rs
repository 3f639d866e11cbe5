//! Programs in the namespaces of a holder: this program, started again, joins the namespaces and executes the
//! other program.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use crate::error::{Context as _, HostError, Result};
use crate::helper::protocol::SELF_EXEC_ARG;
use crate::namespace::holder::NamespaceHolder;
use crate::process::Process;
use crate::resources::limits;

/// Second argument of this program when it is started to enter the namespaces. The holder, the program and
/// its arguments follow.
pub(crate) const ENTER_ARG: &str = "enter";

/// Builds a command that runs `program` in the namespaces of `holder`.
pub(crate) fn command(holder: &NamespaceHolder, program: &OsStr) -> Command {
    let mut command = match holder {
        NamespaceHolder::None => Command::new(program),
        NamespaceHolder::Process(process) => {
            let mut command = Command::new("/proc/self/exe");
            command.args([SELF_EXEC_ARG, ENTER_ARG, &process.to_arg()]).arg(program);
            command
        }
    };
    limits::reset_open_files_limit(&mut command);
    command
}

/// Joins the holder and executes the program. Returns only on failure.
pub(crate) fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(3).collect();
    match exec_in_namespaces(&arguments) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn exec_in_namespaces(arguments: &[OsString]) -> Result<std::convert::Infallible> {
    let [holder, program, arguments @ ..] = arguments else {
        return Err(HostError::other("no program to run"));
    };
    let process = holder.to_str().and_then(Process::from_arg);
    let process = process.ok_or_else(|| HostError::other("the first argument identifies no holder"))?;
    NamespaceHolder::Process(process).join()?;
    Err(Command::new(program).args(arguments).exec()).context(format!("run {}", program.display()))
}
