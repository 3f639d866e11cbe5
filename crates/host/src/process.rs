//! A process that outlives whoever started it, and how it is found again.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, HostError, Result};

/// Which process is meant, for good: numbers come again, and after a restart of the machine so do the moments at
/// which processes begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pid: i32,
    /// When it began, in ticks since the machine did.
    started: u64,
    /// Since which start of the machine.
    boot: String,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: Pid) -> Result<Self> {
        let started = status(pid).doing("look at a process")?.started;
        let boot = boot().doing("read which start of the machine this is")?;
        Ok(Self { pid: pid.as_raw_nonzero().get(), started, boot })
    }

    /// The process noted at `path`, whether it still runs or not; none if none is.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(format!("read {}", path.display())),
        };
        let process = serde_json::from_str(&text).map_err(io::Error::from);
        process.doing(format!("understand {}", path.display())).map(Some)
    }

    /// Notes it at `path`. Whoever reads there finds all of it or nothing.
    pub(crate) fn note(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        let text = serde_json::to_string(self).map_err(|error| HostError::other(error.to_string()))?;
        let noted = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
        if noted.is_err() {
            // What stands there in part is of no use.
            let _ = fs::remove_file(&new);
        }
        noted.doing(format!("note a process at {}", path.display()))
    }

    /// Says which it is in one word.
    pub(crate) fn word(&self) -> String {
        format!("{}:{}:{}", self.pid, self.started, self.boot)
    }

    /// The process that such a word means.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let mut parts = word.splitn(3, ':');
        let (pid, started) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { pid, started, boot: parts.next()?.to_owned() })
    }

    /// Its number, as this process sees it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        self.pidfd().is_some()
    }

    /// A descriptor of it, if it still runs; can be read from when it ends. What it is cannot change as long as
    /// this is open.
    pub fn pidfd(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Looked at after it was opened: whoever has the number now is who was opened, or came later.
        let status = status(pid).ok()?;
        let same = status.started == self.started && boot().ok()? == self.boot;
        (same && !status.ended).then_some(fd)
    }

    /// Ends it, and everything in its namespaces.
    pub fn kill(&self) {
        if let Some(fd) = self.pidfd() {
            // It may have ended meanwhile.
            let _ = pidfd_send_signal(&fd, Signal::KILL);
        }
    }
}

/// What the kernel tells of a process.
pub(crate) struct Status {
    /// Only waiting for its parent to take notice.
    pub(crate) ended: bool,
    pub(crate) parent: i32,
    pub(crate) started: u64,
}

impl Status {
    /// Understands a process's `stat`.
    pub(crate) fn parse(stat: &str) -> io::Result<Self> {
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut fields = fields.split_ascii_whitespace();
        let ended = matches!(fields.next(), Some("Z" | "X"));
        let parent = fields.next().and_then(|field| field.parse().ok());
        let started = fields.nth(17).and_then(|field| field.parse().ok());
        let both = parent.zip(started);
        let (parent, started) = both.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { ended, parent, started })
    }
}

pub(crate) fn status(pid: Pid) -> io::Result<Status> {
    Status::parse(&stat(Path::new(&format!("/proc/{pid}")))?)
}

/// The `stat` of a process or a thread by its directory in `/proc`. The name in it may be of any bytes.
pub(crate) fn stat(directory: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(directory.join("stat"))?).into_owned())
}

/// Lets this process end with the one that made it. A launcher that went on would start a sandbox of which the
/// next server has found nothing.
pub(crate) fn end_with_parent() {
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn boot() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(process: &Process) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("process");
        process.note(&path).unwrap();
        (directory, path)
    }

    fn sleep() -> (std::process::Child, Process) {
        let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(Pid::from_raw(child.id() as i32).unwrap()).unwrap();
        (child, process)
    }

    #[test]
    fn a_noted_process_is_found_again_until_it_ends() {
        let (mut child, process) = sleep();
        let (_directory, path) = noted(&process);
        assert_eq!(Process::read(&path).unwrap().as_ref(), Some(&process));
        assert!(process.is_running());
        process.kill();
        let fd = process.pidfd();
        if let Some(fd) = fd {
            let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut polled, None).unwrap();
        }
        // Ended, but its parent has not taken notice.
        assert!(!process.is_running());
        child.wait().unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn another_with_the_same_number_is_not_meant() {
        let (mut child, process) = sleep();
        let earlier = Process { started: process.started - 1, ..process.clone() };
        let before_restart = Process { boot: "another".to_owned(), ..process.clone() };
        for other in [earlier, before_restart] {
            other.kill();
            assert!(!other.is_running());
        }
        assert!(process.is_running());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn nothing_noted_is_no_process_and_nonsense_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("process");
        assert_eq!(Process::read(&path).unwrap(), None);
        fs::write(&path, "{\"pid\":").unwrap();
        assert!(Process::read(&path).is_err());
    }
}
