//! Commands that are too long for an argument.
//!
//! The kernel takes no argument of 128 KiB or more. A longer command is given to its shell in a file without a name,
//! which the shell reads as it would have read the argument: `$0`, its input and its line numbers are the same. Only
//! some shells name the file in messages of their own.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

/// The longest argument of a program, without the NUL behind it.
const ARGUMENT_MAX: usize = (128 << 10) - 1;
/// Where a shell finds its script. One digit, because not all of them can name others.
pub(crate) const SCRIPT_FD: RawFd = 4;
/// Shells that read files alike.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"];

/// The words that run a command, and the script that they read, if the command cannot be one of them.
pub(crate) fn words(shell: String, command: String) -> (Vec<String>, Option<String>) {
    let flag = "-c".to_owned();
    let name = Path::new(&shell).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if command.len() <= ARGUMENT_MAX || !SHELLS.contains(&name) {
        return (vec![shell, flag, command], None);
    }
    // What the command starts must not have the file. In the same line, so that lines keep their numbers.
    let script = format!("exec {SCRIPT_FD}<&-; {command}");
    (vec![shell, flag, format!(". /proc/self/fd/{SCRIPT_FD}")], Some(script))
}

/// A file without a name that holds a script.
pub(crate) fn file(script: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("script", MemfdFlags::CLOEXEC)?);
    file.write_all(script.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_command_that_is_too_long_becomes_a_file() {
        let of = |shell: &str, len: usize| words(shell.to_owned(), "x".repeat(len));
        assert_eq!(of("/bin/sh", ARGUMENT_MAX).1, None);
        let (words, script) = of("/usr/bin/bash", ARGUMENT_MAX + 1);
        assert_eq!(words, ["/usr/bin/bash", "-c", ". /proc/self/fd/4"]);
        assert!(script.is_some_and(|script| script.starts_with("exec 4<&-; xxx")));
        assert_eq!(of("/usr/bin/python3", ARGUMENT_MAX + 1).1, None);
    }
}
