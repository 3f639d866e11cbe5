//! The program `exportfs`, which tells the kernel of the lines in the files of exports(5).

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::NfsError;

/// Name of the program.
const PROGRAM: &str = "exportfs";

/// Directories in which the program is looked for, after those in `PATH`.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"];

/// Maximum time that the program may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length in bytes of the messages of the program that are read.
const MESSAGES_MAX: u64 = 64 * 1024;

/// Result of a run that was not killed.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    status: ExitStatus,
    /// Messages of the program, one per line.
    messages: String,
}

impl Outcome {
    /// Returns what the program says about a path, if it failed. A failure may also be about lines of others in the
    /// same files; the program then still applies all other lines.
    pub(super) fn complaint_about(&self, path: &str) -> Option<String> {
        if self.status.success() {
            return None;
        }
        let is_named = |line: &&str| {
            line.match_indices(path).any(|(start, _)| {
                // Not a longer path, like that of a directory below.
                let next = line[start + path.len()..].chars().next();
                !next.is_some_and(|next| next.is_ascii_alphanumeric() || "/-_.".contains(next))
            })
        };
        let complaints: Vec<&str> = self.messages.lines().filter(is_named).collect();
        (!complaints.is_empty()).then(|| complaints.join("; "))
    }

    /// Logs a failure.
    pub(super) fn report(&self) {
        if !self.status.success() {
            let messages = self.messages.trim_end();
            tracing::warn!(status = %self.status, messages, "exportfs failed for some NFS exports");
        }
    }
}

/// Finds the program in the directories of `PATH`, and those in which systems have it.
pub(super) fn find(path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let of_path = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    let directories = of_path.into_iter().chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(PROGRAM)).find(|program| is_executable(program))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Makes the kernel export exactly what the files of exports(5) say.
pub(super) fn refresh(program: &Path) -> Result<Outcome, NfsError> {
    let failed = |source| NfsError::Exportfs { program: program.to_owned(), source };
    run(program).map_err(failed)
}

fn run(program: &Path) -> io::Result<Outcome> {
    // A file and not a pipe: nobody needs to read while the program runs.
    let mut messages = File::from(rustix::fs::memfd_create("exportfs", MemfdFlags::CLOEXEC)?);
    let mut child = Command::new(program)
        .arg("-ra")
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(messages.try_clone()?)
        .stderr(messages.try_clone()?)
        .spawn()?;
    let waited = wait(&mut child);
    if waited.is_err() {
        // Fails only if it has ended.
        let _ = child.kill();
    }
    let status = child.wait()?;
    waited?;
    messages.rewind()?;
    let mut bytes = Vec::new();
    messages.take(MESSAGES_MAX).read_to_end(&mut bytes)?;
    Ok(Outcome { status, messages: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Waits until a child process has ended. Fails after [`TIMEOUT`].
fn wait(child: &mut Child) -> io::Result<()> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it has not ended in time"));
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn only_complaints_about_the_path_count() {
        let messages = "exportfs: /srv/old does not exist\nexportfs: /w/sbx-1: Function not implemented\n";
        let failed = Outcome { status: ExitStatus::from_raw(256), messages: messages.to_owned() };
        let complaint = failed.complaint_about("/w/sbx-1").unwrap();
        assert_eq!(complaint, "exportfs: /w/sbx-1: Function not implemented");
        for other in ["/w/sbx", "/w", "/w/sbx-2"] {
            assert_eq!(failed.complaint_about(other), None, "{other}");
        }
        let good = Outcome { status: ExitStatus::from_raw(0), ..failed };
        assert_eq!(good.complaint_about("/w/sbx-1"), None);
    }

    #[test]
    fn the_program_is_found_in_path_first() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(PROGRAM);
        fs::write(&program, "#!/bin/sh\n").unwrap();
        assert_ne!(find(Some(directory.path().as_os_str())).as_ref(), Some(&program), "it is not executable");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(Some(directory.path().as_os_str())), Some(program));
    }

    #[test]
    fn messages_and_a_missing_program_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(PROGRAM);
        assert!(matches!(refresh(&program), Err(NfsError::Exportfs { .. })));
        fs::write(&program, "#!/bin/sh\necho \"$* /a b\" >&2\nexit 1\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let outcome = refresh(&program).unwrap();
        assert_eq!(outcome.complaint_about("/a b").unwrap(), "-ra /a b");
    }
}
