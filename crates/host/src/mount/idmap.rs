//! Mounts that show files as those of another user (idmapped mounts).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::Pid;

use crate::error::{Doing as _, HostError, Result};
use crate::mount::mounts;
use crate::namespace::holder::Holder;
use crate::namespace::id_map::{self, Range};
use crate::namespace::sandbox_ids::{self, USER};

/// Owners of files on the disk, and the users they are shown as: the user that all sandboxes share as this one, and everybody
/// up to the last of those as he is. The superuser is among them; the kernel makes files of its own for an overlay.
fn shown(users: Range, own: u32) -> Vec<Range> {
    let same = |first: u32, end: u32| Range { inside: first, outside: first, count: end - first };
    let (shared, end) = (users.outside + USER, users.outside + users.count);
    let own = Range { inside: shared, outside: own, count: 1 };
    [same(0, shared), own, same(shared + 1, end)].into_iter().filter(|range| range.count > 0).collect()
}

/// Mounts that show what all sandboxes share as one user's own.
#[derive(Debug)]
pub(crate) struct Shown {
    users: OwnedFd,
}

impl Shown {
    /// To this user of a sandbox.
    pub(crate) fn to(own: u32) -> Result<Self> {
        let map = shown(sandbox_ids::users(&Holder::Machine), own);
        Ok(Self { users: namespace(&map)? })
    }

    /// A copy of the mount at a path, without those below, mounted nowhere yet.
    pub(crate) fn take_up(&self, path: &Path) -> Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, path, flags).doing(format!("take up {}", path.display()))?;
        self.apply(tree.as_fd()).doing(format!("show {} to the user of a sandbox", path.display()))?;
        Ok(tree)
    }

    /// Does it to a mount that is nowhere yet.
    pub(crate) fn apply(&self, tree: BorrowedFd<'_>) -> io::Result<()> {
        mounts::show(tree, self.users.as_fd())
    }
}

/// Room for the few calls of [`wait_for_end`], and what signals would need.
const STACK: usize = 32 << 10;

/// A user namespace with this map for users and groups, in which no process is.
///
/// It takes a process to make one. That process has the memory of this one and does nothing; a copy of this one would
/// take milliseconds.
fn namespace(map: &[Range]) -> Result<OwnedFd> {
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let child = {
        let _signals = NoSignals::new();
        // SAFETY: the child gets a stack that lives until it has ended, and calls nothing that changes memory. No signal
        // reaches it that somebody here handles.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(stack.len());
            let flags = libc::CLONE_NEWUSER | libc::CLONE_VM;
            libc::clone(wait_for_end, top.cast(), flags, parent as usize as *mut libc::c_void)
        };
        let pid = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
        Idle(pid.doing("make a user namespace")?)
    };
    let pid = Pid::from_raw(child.0).ok_or_else(|| HostError::other("a child without a number"))?;
    id_map::map(pid, map, map)?;
    let namespace = File::open(format!("/proc/{pid}/ns/user")).doing("open a user namespace")?;
    drop(child);
    drop(stack);
    Ok(namespace.into())
}

/// Waits, which is all that the child does, until it is killed, at the latest when its parent ends.
extern "C" fn wait_for_end(parent: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the calls take numbers and do not fail.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        while libc::getppid() as usize == parent as usize {
            libc::pause();
        }
        libc::_exit(0)
    }
}

/// The child; ends with this.
struct Idle(libc::pid_t);

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: the calls take numbers, and a process that nobody else waits for: who waits for any child of this process
        // is told only of those that end with a signal.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, std::ptr::null_mut(), libc::__WALL) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// Keeps all signals from this thread, and from a child that it makes, until dropped.
struct NoSignals(libc::sigset_t);

impl NoSignals {
    fn new() -> Self {
        // SAFETY: both sets live through the calls, which fill them.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::geteuid;

    use super::*;

    /// One of the users that sandboxes have of their own.
    const OWN: u32 = 0x7800_0007;

    #[test]
    fn a_mount_shows_every_id_once() {
        let first = 1_878_982_656;
        let shown = shown(Range { inside: 0, outside: first, count: 65_536 }, OWN);
        let ends: Vec<_> = shown.iter().map(|range| (range.inside, range.outside, range.count)).collect();
        let shared = first + 1000;
        assert_eq!(ends, [(0, 0, shared), (shared, OWN, 1), (shared + 1, shared + 1, 64_535)]);
    }

    #[test]
    fn a_namespace_is_made_without_leaving_a_process() {
        if !geteuid().is_root() {
            return;
        }
        let children = || std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let before = children();
        let made = Shown::to(OWN).unwrap();
        assert!(
            std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&made.users)))
                .unwrap()
                .to_string_lossy()
                .starts_with("user:")
        );
        assert_eq!(children(), before);
    }
}
