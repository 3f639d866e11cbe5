//! Short time slices of the scheduler for the server and the guest agent.
//!
//! Both sleep most of the time and run briefly. On a busy machine such a process waits until the running
//! processes have used up their time slices, once for each of the dozen wake-ups per command. The scheduler runs a
//! process with a shorter time slice earlier, without giving it more CPU time in total.

/// Shortest time slice that Linux supports, in nanoseconds.
#[cfg(target_os = "linux")]
const TIME_SLICE_MIN_NANOS: u64 = 100_000;

/// Requests the shortest time slice for the calling thread, and for threads and processes that it starts later. Threads
/// that are running already keep theirs. Linux before 6.12 accepts the request without effect.
///
/// # Errors
///
/// Fails if the kernel or a seccomp filter rejects the call. Callers can ignore the error.
#[cfg(target_os = "linux")]
pub fn shorten_time_slice() -> std::io::Result<()> {
    set_time_slice(TIME_SLICE_MIN_NANOS)
}

/// Restores the default time slice of the calling thread, before it runs a user's program or transfers files.
///
/// # Errors
///
/// Fails like [`shorten_time_slice`].
#[cfg(target_os = "linux")]
pub fn restore_time_slice() -> std::io::Result<()> {
    set_time_slice(0)
}

/// Sets the time slice of the calling thread in nanoseconds; 0 selects the default. Does nothing under a scheduling
/// policy that an administrator chose, such as `SCHED_IDLE`.
#[cfg(target_os = "linux")]
fn set_time_slice(nanoseconds: u64) -> std::io::Result<()> {
    let mut attributes = scheduling_of(0)?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attributes.sched_runtime = nanoseconds;
    set_scheduling(&attributes)
}

/// Sets the scheduling attributes of the calling thread.
#[cfg(target_os = "linux")]
fn set_scheduling(attributes: &libc::sched_attr) -> std::io::Result<()> {
    // SAFETY: the kernel reads `size` bytes, which is the size of `attributes`.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the scheduling attributes of a thread; 0 is the calling thread.
#[cfg(target_os = "linux")]
fn scheduling_of(thread: libc::pid_t) -> std::io::Result<libc::sched_attr> {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) } {
        0 => Ok(attributes),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Does nothing: only Linux lets a thread choose its time slice.
///
/// # Errors
///
/// Never fails.
#[cfg(not(target_os = "linux"))]
pub fn shorten_time_slice() -> std::io::Result<()> {
    Ok(())
}

/// Does nothing, like [`shorten_time_slice`].
///
/// # Errors
///
/// Never fails.
#[cfg(not(target_os = "linux"))]
pub fn restore_time_slice() -> std::io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn time_slice_of(process: libc::pid_t) -> u64 {
        scheduling_of(process).unwrap().sched_runtime
    }

    #[test]
    fn short_time_slice_is_inherited_until_restored() {
        let default = std::thread::spawn(|| time_slice_of(0)).join().unwrap();
        let test = move || {
            shorten_time_slice().unwrap();
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let inherited = time_slice_of(child.id().try_into().unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(time_slice_of(0), inherited);
            // The kernel reports time slices if it supports them.
            if default != 0 {
                assert!(inherited < default, "{inherited} {default}");
            }
            restore_time_slice().unwrap();
            assert_eq!(time_slice_of(0), default);
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn another_scheduling_policy_is_kept() {
        let test = || {
            let idle =
                libc::sched_attr { sched_policy: libc::SCHED_IDLE as u32, ..scheduling_of(0).unwrap() };
            set_scheduling(&idle).unwrap();
            shorten_time_slice().unwrap();
            restore_time_slice().unwrap();
            assert_eq!(scheduling_of(0).unwrap().sched_policy, libc::SCHED_IDLE as u32);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
