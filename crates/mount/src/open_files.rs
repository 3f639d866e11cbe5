//! Limit of open files: raised for this process, and restored for its child processes.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Soft limit of open files before this process raised it.
static ORIGINAL: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit: a large store has more packs than the usual 1,024.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    ORIGINAL.get_or_init(|| current);
    // Fails only with unusual security modules. The old limit is enough for most stores.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Restores the original limit in a child process.
pub(crate) fn with_original_limit(command: &mut Command) -> &mut Command {
    let Some(original) = ORIGINAL.get().copied() else { return command };
    let limit = move || {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        Ok(setrlimit(Resource::Nofile, Rlimit { current: original, maximum })?)
    };
    // SAFETY: only two system calls run between fork and exec.
    unsafe { command.pre_exec(limit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_processes_have_the_original_limit() {
        let before = getrlimit(Resource::Nofile).current;
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
        let output = with_original_limit(Command::new("sh").args(["-c", "ulimit -Sn"])).output().unwrap();
        let reported = String::from_utf8(output.stdout).unwrap();
        assert_eq!(reported.trim(), before.map_or("unlimited".to_owned(), |before| before.to_string()));
    }
}
