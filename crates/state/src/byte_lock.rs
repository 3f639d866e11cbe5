//! Advisory locks on single bytes of a file (open file description locks).
//!
//! Only the kernel stores such a lock: it takes no disk space, works on a read-only file system and past the end
//! of the file, and ends with the process. The lock belongs to the open file description, as with `flock`, and not
//! to the process, so that closing another descriptor of the same file does not release it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{F_OFD_GETLK, F_OFD_SETLK, c_short};

// The type of these constants differs between systems. The field `l_type` is a `c_short` on all of them.
const SHARED: c_short = libc::F_RDLCK as c_short;
const EXCLUSIVE: c_short = libc::F_WRLCK as c_short;
const UNLOCKED: c_short = libc::F_UNLCK as c_short;

/// Takes a shared lock on a byte. Fails instead of waiting.
pub(crate) fn share(file: &File, byte: u64) -> io::Result<()> {
    call(file, F_OFD_SETLK, SHARED, byte, 1).map(drop)
}

/// Releases a lock taken by [`share`].
pub(crate) fn release(file: &File, byte: u64) -> io::Result<()> {
    call(file, F_OFD_SETLK, UNLOCKED, byte, 1).map(drop)
}

/// Returns the lowest byte in `from..to` that is locked through another open file description.
pub(crate) fn lowest_locked(file: &File, from: u64, to: u64) -> io::Result<Option<u64>> {
    let (mut lowest, mut end) = (None, to);
    while from < end {
        // The kernel reports an arbitrary lock in the range: search below that lock until there is none.
        let Some(lock_start) = call(file, F_OFD_GETLK, EXCLUSIVE, from, end - from)? else { break };
        lowest = Some(lock_start.max(from));
        end = lock_start;
    }
    Ok(lowest)
}

/// Calls `fcntl`. Returns the start of the conflicting lock if `F_OFD_GETLK` found one.
fn call(file: &File, command: i32, lock_type: c_short, start: u64, len: u64) -> io::Result<Option<u64>> {
    let offset = |number: u64| i64::try_from(number).map_err(io::Error::other);
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = lock_type;
    lock.l_whence = libc::SEEK_SET as c_short;
    (lock.l_start, lock.l_len) = (offset(start)?, offset(len)?);
    // SAFETY: the call takes an open file and writes only to the structure, which outlives it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    let free = command != F_OFD_GETLK || lock.l_type == UNLOCKED;
    Ok(if free { None } else { Some(lock.l_start as u64) })
}
