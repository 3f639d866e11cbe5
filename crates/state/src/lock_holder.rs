//! PIDs of lock holders, for notices to users about long waits for locks.
//!
//! A PID is reported only if it is certain: PIDs are reused, and a PID of another PID namespace is
//! meaningless in this one.

use std::fs::File;
use std::path::Path;

/// Returns the PID of the process that holds the write lock of the LMDB environment in `directory`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn of_write_lock(directory: &Path) -> Option<u32> {
    use std::os::unix::fs::FileExt;

    /// Size of the fields of `MDB_txbody` before its mutex. The structure is padded to a cache line, followed
    /// by the writers' mutex.
    const FIELDS: usize = 24;
    const CACHE_LINE: usize = 64;
    let path = directory.join("lock.mdb");
    let offset = (FIELDS + size_of::<libc::pthread_mutex_t>()).next_multiple_of(CACHE_LINE);
    let mut word = [0; 4];
    File::open(&path).ok()?.read_exact_at(&mut word, offset as u64).ok()?;
    // A robust glibc mutex begins with the thread id of its owner; the two upper bits are flags.
    let thread = u32::from_ne_bytes(word) & (u32::MAX >> 2);
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    has_open(pid, &path).then_some(pid)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn of_write_lock(_directory: &Path) -> Option<u32> {
    None
}

/// Returns the PID of the process that holds an exclusive `flock` on a file.
#[cfg(target_os = "linux")]
pub(crate) fn of_exclusive_lock(file: &File, path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;

    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [_, "FLOCK", _, "WRITE", pid, device_and_inode, ..] if device_and_inode.ends_with(&inode) => {
                pid.parse().ok().filter(|pid| has_open(*pid, path))
            }
            _ => None,
        }
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn of_exclusive_lock(_file: &File, _path: &Path) -> Option<u32> {
    None
}

/// Returns true if a process has the file open; false as well if its descriptors cannot be read.
#[cfg(target_os = "linux")]
fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path))
}
