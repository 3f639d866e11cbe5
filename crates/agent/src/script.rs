//! Commands that are too long for an argument.
//!
//! The kernel accepts no argument of 128 KiB or more. A longer command is passed to its shell in a memfd,
//! which the shell reads like the argument: `$0`, standard input and line numbers are the same. Only some
//! shells print the path of the file in their messages.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

/// Maximum length of an argument in bytes, excluding the NUL.
const ARGUMENT_MAX: usize = (128 << 10) - 1;
/// File descriptor of the script. It is a single digit, since not all shells support larger numbers.
pub(crate) const SCRIPT_FD: RawFd = 4;
/// Shells that can source a file.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"];

/// Returns the arguments that run a command, and the script that they read, if the command is too long for an
/// argument.
pub(crate) fn shell_args(shell: String, command: String) -> (Vec<String>, Option<String>) {
    let flag = "-c".to_owned();
    let name = Path::new(&shell).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if command.len() <= ARGUMENT_MAX || !SHELLS.contains(&name) {
        return (vec![shell, flag, command], None);
    }
    // Processes of the command must not inherit the file. It is closed on the same line, to keep line
    // numbers.
    let script = format!("exec {SCRIPT_FD}<&-; {command}");
    (vec![shell, flag, format!(". /proc/self/fd/{SCRIPT_FD}")], Some(script))
}

/// Creates a memfd with a script or other content.
pub(crate) fn create_memfd(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("content", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_commands_become_scripts() {
        let of = |shell: &str, len: usize| shell_args(shell.to_owned(), "x".repeat(len));
        assert_eq!(of("/bin/sh", ARGUMENT_MAX).1, None);
        let (args, script) = of("/usr/bin/bash", ARGUMENT_MAX + 1);
        assert_eq!(args, ["/usr/bin/bash", "-c", ". /proc/self/fd/4"]);
        assert!(script.is_some_and(|script| script.starts_with("exec 4<&-; xxx")));
        assert_eq!(of("/usr/bin/python3", ARGUMENT_MAX + 1).1, None);
    }
}
