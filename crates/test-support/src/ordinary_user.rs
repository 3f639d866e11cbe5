//! Programs that run as an ordinary user although the tests run as root.

use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/as-ordinary-user.sh");

/// Returns a command that runs a program of the build directory as a user who owns nothing on the machine. The
/// caller must be root.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(SCRIPT);
    command.arg(program);
    command
}
