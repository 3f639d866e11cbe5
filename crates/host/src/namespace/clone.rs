//! Child processes in new namespaces. The parent must have one thread.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use linux_raw_sys::general::{CLONE_INTO_CGROUP, clone_args};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use crate::error::{Context as _, HostError, Result};
use crate::helper::error::{HelperError, HostErrorKind};

/// Namespaces of a sandbox.
pub(crate) const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET;

/// Child process, with a pipe in each direction. Parent and child take turns: one calls `notify` when its step is done,
/// and the other `wait`.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    to_child: io::PipeWriter,
    from_child: io::PipeReader,
}

/// Parent process, as the child sees it: the child's ends of the pipes.
pub(crate) struct Parent {
    to_parent: io::PipeWriter,
    from_parent: io::PipeReader,
}

/// Byte that reports a finished step.
const STEP: u8 = 1;
/// Byte that reports a failed step. The error follows as JSON.
const FAILED: u8 = 2;

fn pipe() -> Result<(io::PipeReader, io::PipeWriter)> {
    let (reader, writer): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC).context("create a pipe")?;
    Ok((reader.into(), writer.into()))
}

/// Forks into new namespaces and, if given, into a cgroup of version 2.
///
/// # Safety
///
/// The process has one thread, so that the child is a complete copy of it.
unsafe fn clone(namespaces: libc::c_int, cgroup: Option<BorrowedFd<'_>>) -> libc::c_long {
    let Some(cgroup) = cgroup else {
        // SAFETY: without a stack the child continues on a copy of this one.
        return unsafe { libc::syscall(libc::SYS_clone, namespaces | libc::SIGCHLD, 0, 0, 0, 0) };
    };
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut arguments: clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = namespaces as u64 | CLONE_INTO_CGROUP;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: the structure has the given size and outlives the call; the stack is as above.
    unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<clone_args>()) }
}

/// Spawns a child in new namespaces and, if given, in a cgroup. The child runs `work`, which returns only on
/// failure; the error is sent to the parent.
pub(crate) fn spawn(
    namespaces: libc::c_int,
    cgroup: Option<BorrowedFd<'_>>,
    work: impl FnOnce(&mut Parent) -> HostError,
) -> Result<Child> {
    let (from_child, to_parent) = pipe()?;
    let (from_parent, to_child) = pipe()?;
    // SAFETY: this is called in helpers, which have one thread.
    match unsafe { clone(namespaces, cgroup) } {
        -1 => Err(explain_failure(namespaces, io::Error::last_os_error())),
        0 => {
            drop((from_child, to_child));
            let mut parent = Parent { to_parent, from_parent };
            let error = work(&mut parent);
            parent.fail(&error.into());
            // SAFETY: exits the process without running exit handlers of the parent.
            unsafe { libc::_exit(1) }
        }
        pid => {
            let pid =
                Pid::from_raw(pid as i32).ok_or_else(|| HostError::other("clone returned an invalid PID"))?;
            Ok(Child { pid, to_child, from_child })
        }
    }
}

/// Returns the error for a failed `clone`.
fn explain_failure(namespaces: libc::c_int, error: io::Error) -> HostError {
    let is_limit = error.kind() == io::ErrorKind::StorageFull;
    let source = without_enospc(error);
    if is_limit && namespaces & libc::CLONE_NEWUSER != 0 {
        return HostError::NoUserNamespaces { source };
    }
    HostError::System { action: "create namespaces".to_owned(), source }
}

/// Replaces `ENOSPC`, with which the kernel reports that a limit of namespaces is reached: it must not be taken
/// for a full disk.
pub(crate) fn without_enospc(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            io::Error::other("the limit of namespaces is reached: raise it, sysctl user.max_*_namespaces")
        }
        _ => error,
    }
}

impl Parent {
    /// Returns the file descriptors of the pipes.
    pub(crate) fn fds(&self) -> [RawFd; 2] {
        [self.to_parent.as_raw_fd(), self.from_parent.as_raw_fd()]
    }

    /// Tells the parent that a step is done.
    pub(crate) fn notify(&mut self) -> Result<()> {
        self.to_parent.write_all(&[STEP]).context("notify the parent")
    }

    /// Waits until the parent has done its step.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let mut step = [0];
        self.from_parent.read_exact(&mut step).context("wait for the parent")
    }

    fn fail(&mut self, error: &HelperError) {
        // Encoding does not fail. The parent may have exited; then the error is not needed.
        let error = serde_json::to_vec(&error).unwrap_or_default();
        drop(self.to_parent.write_all(&[FAILED]).and_then(|()| self.to_parent.write_all(&error)));
    }
}

impl Child {
    /// Waits for the next step of the child. Returns false if it executed another program or exited.
    pub(crate) fn wait(&mut self) -> Result<bool> {
        let mut step = [0];
        match self.from_child.read(&mut step).context("wait for the child")? {
            0 => Ok(false),
            _ if step == [STEP] => Ok(true),
            _ => {
                let mut error = Vec::new();
                self.from_child.read_to_end(&mut error).context("read the error of the child")?;
                Err(serde_json::from_slice(&error).map_or_else(|error| unreadable(&error), HostError::Helper))
            }
        }
    }

    /// Waits for the next step of the child. Fails if it exited instead.
    pub(crate) fn wait_ready(&mut self) -> Result<()> {
        if self.wait()? {
            Ok(())
        } else {
            Err(HostError::of_kind(HostErrorKind::Protocol, "the child exited unexpectedly"))
        }
    }

    /// Tells the child that a step is done.
    pub(crate) fn notify(&mut self) -> Result<()> {
        self.to_child.write_all(&[STEP]).context("notify the child")
    }

    /// Kills the child and waits for it. If it is the first process of a PID namespace, the kernel
    /// kills all others there.
    pub(crate) fn kill(&self) {
        // It may have exited by itself.
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

/// Returns the error for a child that was killed while it sent an error.
fn unreadable(error: &serde_json::Error) -> HostError {
    HostError::of_kind(HostErrorKind::Protocol, format!("the child exited unexpectedly: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::holder::explain_refusal;

    #[test]
    fn the_limit_of_user_namespaces_is_an_error_with_a_remedy_and_no_full_disk() {
        let enospc = || io::Error::from_raw_os_error(libc::ENOSPC);
        let error = explain_refusal(explain_failure(NAMESPACES, enospc()));
        assert_eq!(error.kind(), HostErrorKind::NoUserNamespaces);
        let message = error.to_string();
        assert!(message.contains("user.max_") && message.contains("RUNTIME=docker"), "{message}");
        assert!(!HelperError::from(error).is_disk_full());
        // Without a user namespace, only the limit is named.
        let error = explain_refusal(explain_failure(libc::CLONE_NEWNS, enospc()));
        assert_eq!(error.kind(), HostErrorKind::System);
        assert!(error.to_string().contains("user.max_") && error.os_error().is_none(), "{error}");
    }
}
