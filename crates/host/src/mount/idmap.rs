//! Id-mapped mounts, in which files appear with another owner.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::Pid;

use crate::error::{Context as _, HostError, Result};
use crate::mount::mounts;
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::id_map::{self, IdRange};
use crate::namespace::sandbox_ids::{self, SANDBOX_UID};

/// Returns the map from owners on disk (`inside`) to owners in the mount (`outside`). The UID that all sandboxes share
/// maps to `dedicated_uid`. All other ids, up to the last one of sandboxes, map to themselves. Root must be mapped,
/// because the kernel creates files of its own for an overlay.
fn owner_map(sandbox_ids: IdRange, dedicated_uid: u32) -> Vec<IdRange> {
    let same = |first: u32, end: u32| IdRange { inside: first, outside: first, count: end - first };
    let (shared, end) = (sandbox_ids.outside + SANDBOX_UID, sandbox_ids.outside + sandbox_ids.count);
    let dedicated = IdRange { inside: shared, outside: dedicated_uid, count: 1 };
    [same(0, shared), dedicated, same(shared + 1, end)].into_iter().filter(|range| range.count > 0).collect()
}

/// Id map that maps the owner of the files of all sandboxes to one UID.
#[derive(Debug)]
pub(crate) struct IdMap {
    user_namespace: OwnedFd,
}

impl IdMap {
    /// Creates the map for the dedicated UID of a sandbox.
    pub(crate) fn for_dedicated_uid(dedicated_uid: u32) -> Result<Self> {
        let map = owner_map(sandbox_ids::ids_of(&NamespaceHolder::None), dedicated_uid);
        Ok(Self { user_namespace: user_namespace(&map)? })
    }

    /// Clones the mount at `path`, without the mounts below it. The clone is detached and has this map.
    pub(crate) fn clone_mount(&self, path: &Path) -> Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, path, flags).context(format!("clone the mount at {}", path.display()))?;
        self.apply(tree.as_fd()).context(format!("map the ids of {}", path.display()))?;
        Ok(tree)
    }

    /// Sets the map on a detached mount.
    pub(crate) fn apply(&self, tree: BorrowedFd<'_>) -> io::Result<()> {
        mounts::set_id_map(tree, self.user_namespace.as_fd())
    }
}

/// Stack size of [`wait_for_kill`]: its calls, and room for signal frames.
const STACK_SIZE: usize = 32 << 10;

/// Creates a user namespace with this map for users and groups, without a process in it.
///
/// The kernel creates user namespaces only for processes, so this starts a child, which does nothing. The child
/// shares the memory of this process (`CLONE_VM`); a fork would take milliseconds.
fn user_namespace(map: &[IdRange]) -> Result<OwnedFd> {
    let mut stack = vec![0_u128; STACK_SIZE / size_of::<u128>()];
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    let child = {
        let _signals = BlockedSignals::new();
        // SAFETY: the stack lives until the child has exited, and the child modifies no memory. All signals
        // are blocked, so no handler of this process runs in it.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(stack.len());
            let flags = libc::CLONE_NEWUSER | libc::CLONE_VM;
            libc::clone(wait_for_kill, top.cast(), flags, parent as usize as *mut libc::c_void)
        };
        let pid = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
        IdleChild(pid.context("create a user namespace")?)
    };
    let pid = Pid::from_raw(child.0).ok_or_else(|| HostError::other("clone returned an invalid PID"))?;
    id_map::write(pid, map, map)?;
    let namespace = File::open(format!("/proc/{pid}/ns/user")).context("open a user namespace")?;
    drop(child);
    drop(stack);
    Ok(namespace.into())
}

/// Entry point of the child: waits until it is killed, at the latest when its parent exits.
extern "C" fn wait_for_kill(parent: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the calls take integers and do not fail.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        while libc::getppid() as usize == parent as usize {
            libc::pause();
        }
        libc::_exit(0)
    }
}

/// Child process, killed when this is dropped.
struct IdleChild(libc::pid_t);

impl Drop for IdleChild {
    fn drop(&mut self) {
        // SAFETY: the calls take integers, and no other thread waits for this child: without `__WALL`,
        // `waitpid` ignores children that exit without a signal.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, std::ptr::null_mut(), libc::__WALL) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// Blocks all signals for this thread and children that it creates, until dropped.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> Self {
        // SAFETY: both sets outlive the calls, which fill them.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: restores the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::geteuid;

    use super::*;

    /// Dedicated UID of a sandbox.
    const DEDICATED_UID: u32 = 0x7800_0007;

    #[test]
    fn the_owner_map_has_every_id_once() {
        let first = 1_878_982_656;
        let map = owner_map(IdRange { inside: 0, outside: first, count: 65_536 }, DEDICATED_UID);
        let ranges: Vec<_> = map.iter().map(|range| (range.inside, range.outside, range.count)).collect();
        let shared = first + 1000;
        assert_eq!(ranges, [(0, 0, shared), (shared, DEDICATED_UID, 1), (shared + 1, shared + 1, 64_535)]);
    }

    #[test]
    fn creating_a_user_namespace_leaves_no_process() {
        if !geteuid().is_root() {
            return;
        }
        let children = || std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let before = children();
        let id_map = IdMap::for_dedicated_uid(DEDICATED_UID).unwrap();
        assert!(
            std::fs::read_link(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&id_map.user_namespace)
            ))
            .unwrap()
            .to_string_lossy()
            .starts_with("user:")
        );
        assert_eq!(children(), before);
    }
}
