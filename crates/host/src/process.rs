//! Identity of a process that outlives the process that started it, so that it can be found again.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, HostError, Result};

/// Identity of a process. PIDs are reused, and start times repeat after a reboot, so it also has the boot id. The
/// serialized names are those in files that other versions of the server wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pid: i32,
    /// Start time, in clock ticks since boot.
    #[serde(rename = "started")]
    start_time: u64,
    /// Boot id of the host when the process started.
    #[serde(rename = "boot")]
    boot_id: String,
}

impl Process {
    /// Returns the process that has this PID now.
    pub fn of(pid: Pid) -> Result<Self> {
        let start_time = status(pid).context("read the state of a process")?.start_time;
        let boot_id = boot_id().context("read the boot id")?.to_owned();
        Ok(Self { pid: pid.as_raw_nonzero().get(), start_time, boot_id })
    }

    /// Reads the process recorded at `path`, whether it still runs or not. Returns `None` if there is no such
    /// file.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(format!("read {}", path.display())),
        };
        let process = serde_json::from_str(&text).map_err(io::Error::from);
        process.context(format!("parse {}", path.display())).map(Some)
    }

    /// Records the process at `path`, atomically.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        let text = serde_json::to_string(self).map_err(|error| HostError::other(error.to_string()))?;
        let saved = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
        if saved.is_err() {
            // Remove an incomplete file.
            let _ = fs::remove_file(&new);
        }
        saved.context(format!("record a process at {}", path.display()))
    }

    /// Formats the identity as one command line argument.
    pub(crate) fn to_arg(&self) -> String {
        format!("{}:{}:{}", self.pid, self.start_time, self.boot_id)
    }

    /// Parses the output of [`to_arg`](Self::to_arg).
    pub(crate) fn from_arg(argument: &str) -> Option<Self> {
        let mut parts = argument.splitn(3, ':');
        let (pid, start_time) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { pid, start_time, boot_id: parts.next()?.to_owned() })
    }

    /// Returns the PID in the namespace of this process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns true if the process still runs. A zombie does not.
    pub fn is_running(&self) -> bool {
        self.pidfd().is_some()
    }

    /// Opens a PID file descriptor, which becomes readable when the process exits. Returns `None` if it has
    /// exited. The descriptor always refers to this process, but does not keep its PID from being reused: check
    /// [`is_running`](Self::is_running) after using the PID.
    pub fn pidfd(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Checked after opening: if the start time matches now, the descriptor belongs to this process.
        let status = status(pid).ok()?;
        let is_same = status.start_time == self.start_time && boot_id().ok()? == self.boot_id;
        (is_same && !status.has_exited).then_some(fd)
    }

    /// Kills the process. If it is the init process of a PID namespace, all others there are killed, too.
    pub fn kill(&self) {
        if let Some(fd) = self.pidfd() {
            // It may have exited.
            let _ = pidfd_send_signal(&fd, Signal::KILL);
        }
    }
}

/// State of a process in `/proc`.
pub(crate) struct Status {
    /// True for a zombie.
    pub(crate) has_exited: bool,
    /// PID of the parent; 0 if this process cannot see the parent.
    pub(crate) parent: i32,
    /// Start time, in clock ticks since boot.
    pub(crate) start_time: u64,
}

impl Status {
    /// Parses `/proc/PID/stat`.
    pub(crate) fn parse(stat: &str) -> io::Result<Self> {
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut fields = fields.split_ascii_whitespace();
        let has_exited = matches!(fields.next(), Some("Z" | "X"));
        let parent = fields.next().and_then(|field| field.parse().ok());
        // Field 22 of the line; the parent is field 4.
        let start_time = fields.nth(17).and_then(|field| field.parse().ok());
        let fields = parent.zip(start_time);
        let (parent, start_time) = fields.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self { has_exited, parent, start_time })
    }
}

/// Reads `/proc/PID/stat`.
pub(crate) fn status(pid: Pid) -> io::Result<Status> {
    Status::parse(&stat(Path::new(&format!("/proc/{pid}")))?)
}

/// Reads `stat` of a process or thread, given its directory in `/proc`. The program name in it may not be
/// valid UTF-8; such bytes are replaced.
pub(crate) fn stat(directory: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read_proc_file(&directory.join("stat"))?).into_owned())
}

/// Reads a small file of `/proc`. Its size is not known before, so `fs::read` would read it in many small pieces.
pub(crate) fn read_proc_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let (mut content, mut len) = (vec![0; 4096], 0);
    loop {
        match file.read(&mut content[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if len == content.len() {
            content.resize(len * 2, 0);
        }
    }
    content.truncate(len);
    Ok(content)
}

/// Makes the kernel kill this process when its parent exits. Otherwise a helper that outlives the server could start a
/// sandbox after the next server has listed the sandboxes that run.
pub(crate) fn kill_on_parent_exit() {
    // SAFETY: the call takes integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Makes the kernel kill this process when `parent` exits. Fails with `ESRCH` if it has exited already, or is
/// not the parent.
pub(crate) fn kill_on_exit_of(parent: Pid) -> io::Result<()> {
    kill_on_parent_exit();
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Returns the boot id of the host, which is the same as long as this process runs.
fn boot_id() -> io::Result<&'static str> {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = BOOT_ID.get() {
        return Ok(id);
    }
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(BOOT_ID.get_or_init(|| text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(process: &Process) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("process");
        process.save(&path).unwrap();
        (directory, path)
    }

    fn sleep() -> (std::process::Child, Process) {
        let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(Pid::from_raw(child.id() as i32).unwrap()).unwrap();
        (child, process)
    }

    #[test]
    fn a_recorded_process_is_found_until_it_exits() {
        let (mut child, process) = sleep();
        let (_directory, path) = save(&process);
        assert_eq!(Process::read(&path).unwrap().as_ref(), Some(&process));
        assert!(process.is_running());
        process.kill();
        let fd = process.pidfd();
        if let Some(fd) = fd {
            let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut polled, None).unwrap();
        }
        // A zombie, until its parent waits for it.
        assert!(!process.is_running());
        child.wait().unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let (mut child, process) = sleep();
        let earlier = Process { start_time: process.start_time - 1, ..process.clone() };
        let before_restart = Process { boot_id: "another".to_owned(), ..process.clone() };
        for other in [earlier, before_restart] {
            other.kill();
            assert!(!other.is_running());
        }
        assert!(process.is_running());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_missing_file_is_none_and_a_malformed_one_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("process");
        assert_eq!(Process::read(&path).unwrap(), None);
        fs::write(&path, "{\"pid\":").unwrap();
        assert!(Process::read(&path).is_err());
    }

    #[test]
    fn a_process_whose_parent_has_exited_is_not_started() {
        use std::os::unix::process::CommandExt as _;
        let start = |parent: Pid| {
            let mut command = std::process::Command::new("true");
            // SAFETY: the function makes two system calls.
            unsafe { command.pre_exec(move || kill_on_exit_of(parent)) };
            command.status()
        };
        assert!(start(rustix::process::getpid()).unwrap().success());
        let other = Pid::from_raw(i32::MAX).unwrap();
        assert_eq!(start(other).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
