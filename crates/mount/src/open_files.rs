//! Limits of open files: as many as possible here, and as many as is usual for other programs.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files that this process might have open before it raised the limit.
static USUAL: OnceLock<Option<u64>> = OnceLock::new();

/// Lets this process have as many files open as it may: the packs of a large store are more than the customary 1,024.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    USUAL.get_or_init(|| current);
    // Refused only by unusual security modules; what there is then is enough for most stores.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Lets a program that is about to be started have as many as this process might in the beginning.
pub(crate) fn usual(command: &mut Command) -> &mut Command {
    let Some(usual) = USUAL.get().copied() else { return command };
    let limit = move || {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        Ok(setrlimit(Resource::Nofile, Rlimit { current: usual, maximum })?)
    };
    // SAFETY: what runs between fork and exec is two system calls.
    unsafe { command.pre_exec(limit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_limit_of_before() {
        let before = getrlimit(Resource::Nofile).current;
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
        let output = usual(Command::new("sh").args(["-c", "ulimit -Sn"])).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(told.trim(), before.map_or("unlimited".to_owned(), |before| before.to_string()));
    }
}
