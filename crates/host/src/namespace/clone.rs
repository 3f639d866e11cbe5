//! Making processes in namespaces of their own, from a process with one thread.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use crate::error::{Doing as _, HostError, Result};
use crate::helper::error::{HelperError, HostErrorKind};

/// New namespaces of a sandbox.
pub(crate) const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET;

/// A child, and the two ways between it and its maker.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    to: io::PipeWriter,
    from: io::PipeReader,
}

/// The child's ends.
pub(crate) struct Parent {
    to: io::PipeWriter,
    from: io::PipeReader,
}

/// One step done.
const STEP: u8 = 1;
/// What follows is why it went no further.
const FAILED: u8 = 2;

fn pipe() -> Result<(io::PipeReader, io::PipeWriter)> {
    let (reader, writer): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC).doing("make a pipe")?;
    Ok((reader.into(), writer.into()))
}

/// Makes the child in a group, `CLONE_INTO_CGROUP`.
const INTO_GROUP: u64 = 1 << 33;

/// What `clone3` takes, up to the group.
#[repr(C)]
#[derive(Default)]
struct Arguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Like fork, into new namespaces and into a group of the second version of cgroups.
///
/// # Safety
///
/// The process has one thread, so that the child is a whole copy of it.
unsafe fn clone(namespaces: libc::c_int, group: Option<BorrowedFd<'_>>) -> libc::c_long {
    let Some(group) = group else {
        // SAFETY: without a stack of its own the child goes on with a copy of this one.
        return unsafe { libc::syscall(libc::SYS_clone, namespaces | libc::SIGCHLD, 0, 0, 0, 0) };
    };
    let arguments = Arguments {
        flags: namespaces as u64 | INTO_GROUP,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: group.as_raw_fd() as u64,
        ..Arguments::default()
    };
    // SAFETY: a structure of the size that is given, which lives through the call; the stack as above.
    unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<Arguments>()) }
}

/// Makes a child in new namespaces of these kinds and in a group, which does `work`. The child never returns: what
/// `work` gives is why it failed, and it is told to the parent.
pub(crate) fn child(
    namespaces: libc::c_int,
    group: Option<BorrowedFd<'_>>,
    work: impl FnOnce(&mut Parent) -> HostError,
) -> Result<Child> {
    let (from, to_parent) = pipe()?;
    let (from_parent, to) = pipe()?;
    // SAFETY: helpers have one thread.
    match unsafe { clone(namespaces, group) } {
        -1 => Err(refused(io::Error::last_os_error())),
        0 => {
            drop((from, to));
            let mut parent = Parent { to: to_parent, from: from_parent };
            let error = work(&mut parent);
            parent.fail(&error.into());
            // SAFETY: ends the process, and runs nothing that the parent will run as well.
            unsafe { libc::_exit(1) }
        }
        pid => {
            let pid =
                Pid::from_raw(pid as i32).ok_or_else(|| HostError::other("a child without a process"))?;
            Ok(Child { pid, to, from })
        }
    }
}

/// Of namespaces the kernel says "no space" too, and means no disk.
fn refused(error: io::Error) -> HostError {
    if error.kind() == io::ErrorKind::StorageFull {
        let text = "cannot make namespaces: there are as many as there may be (sysctl user.max_*_namespaces)";
        return HostError::other(text);
    }
    HostError::System { action: "make namespaces".to_owned(), source: error }
}

impl Parent {
    /// The descriptors that this needs.
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.to.as_raw_fd(), self.from.as_raw_fd()]
    }

    /// Tells the parent that a step is done.
    pub(crate) fn done(&mut self) -> Result<()> {
        self.to.write_all(&[STEP]).doing("tell the parent")
    }

    /// Waits for the parent's step.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let mut step = [0];
        self.from.read_exact(&mut step).doing("wait for the parent")
    }

    fn fail(&mut self, error: &HelperError) {
        // An error is always serializable; a parent that has ended needs none.
        let error = serde_json::to_vec(&error).unwrap_or_default();
        drop(self.to.write_all(&[FAILED]).and_then(|()| self.to.write_all(&error)));
    }
}

impl Child {
    /// Waits for the child's next step; false when it became another program.
    pub(crate) fn wait(&mut self) -> Result<bool> {
        let mut step = [0];
        match self.from.read(&mut step).doing("wait for the child")? {
            0 => Ok(false),
            _ if step == [STEP] => Ok(true),
            _ => {
                let mut error = Vec::new();
                self.from.read_to_end(&mut error).doing("read what the child says")?;
                Err(serde_json::from_slice(&error).map_or_else(unreadable, HostError::Helper))
            }
        }
    }

    /// Waits for the child's next step, which it must not end before.
    pub(crate) fn ready(&mut self) -> Result<()> {
        if self.wait()? {
            Ok(())
        } else {
            Err(HostError::of_kind(HostErrorKind::Protocol, "the child ended too early"))
        }
    }

    /// Tells the child that a step is done.
    pub(crate) fn done(&mut self) -> Result<()> {
        self.to.write_all(&[STEP]).doing("tell the child")
    }

    /// Ends it and everything in its namespaces.
    pub(crate) fn kill(&self) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

/// The child was killed while it said why it failed.
fn unreadable(error: serde_json::Error) -> HostError {
    HostError::of_kind(HostErrorKind::Protocol, format!("the child ended too early: {error}"))
}
