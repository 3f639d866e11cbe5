//! Short slices of processor time for the server and the guest agent.
//!
//! Both sleep nearly always and work for a moment. On a busy machine such a process waits until those that run
//! have used up their slices, once for each of the dozen times that it wakes for one command. The scheduler runs
//! a process that asks for a shorter slice earlier, without giving it more time in sum.

/// The shortest slice that Linux gives.
#[cfg(target_os = "linux")]
const SLICE_NANOSECONDS: u64 = 100_000;

/// Asks for the shortest slice there is, also for the threads and processes that the caller starts. Linux before 6.12
/// takes the request and does not act on it.
///
/// # Errors
///
/// When the system refuses, as a filter of system calls may. Everything works without it.
#[cfg(target_os = "linux")]
pub fn shorten_slice() -> std::io::Result<()> {
    set_slice(SLICE_NANOSECONDS)
}

/// Gives the caller the usual slice again, as programs of users have it.
///
/// # Errors
///
/// As [`shorten_slice`].
#[cfg(target_os = "linux")]
pub fn restore_slice() -> std::io::Result<()> {
    set_slice(0)
}

/// Zero is for the usual one.
#[cfg(target_os = "linux")]
fn set_slice(nanoseconds: u64) -> std::io::Result<()> {
    // SAFETY: plain integers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_nice = rustix::process::getpriority_process(None)?;
    attributes.sched_runtime = nanoseconds;
    // SAFETY: the kernel reads as many bytes as `size` says, all of them in `attributes`.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Does nothing: only Linux lets a process choose.
///
/// # Errors
///
/// None.
#[cfg(not(target_os = "linux"))]
pub fn shorten_slice() -> std::io::Result<()> {
    Ok(())
}

/// Does nothing, as [`shorten_slice`].
///
/// # Errors
///
/// None.
#[cfg(not(target_os = "linux"))]
pub fn restore_slice() -> std::io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn slice_of(process: libc::pid_t) -> u64 {
        // SAFETY: plain integers, for which zero is a value.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::sched_attr>();
        // SAFETY: the kernel writes at most `size` bytes.
        let done = unsafe { libc::syscall(libc::SYS_sched_getattr, process, &raw mut attributes, size, 0) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        attributes.sched_runtime
    }

    #[test]
    fn a_short_slice_is_inherited_until_it_is_given_back() {
        let usual = std::thread::spawn(|| slice_of(0)).join().unwrap();
        let test = move || {
            shorten_slice().unwrap();
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let inherited = slice_of(child.id().try_into().unwrap());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(slice_of(0), inherited);
            // Where the kernel knows of slices, it tells them.
            if usual != 0 {
                assert!(inherited < usual, "{inherited} {usual}");
            }
            restore_slice().unwrap();
            assert_eq!(slice_of(0), usual);
        };
        std::thread::spawn(test).join().unwrap();
    }
}
