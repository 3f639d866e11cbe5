//! Short slices of processor time for the server and the guest agent.
//!
//! Both sleep nearly always and work for a moment. On a busy machine such a process waits until those that run
//! have used up their slices, once for each of the dozen times that it wakes for one command. The scheduler runs
//! a process that asks for a shorter slice earlier, without giving it more time in sum.

/// The shortest slice that Linux gives.
#[cfg(target_os = "linux")]
const SLICE_NANOSECONDS: u64 = 100_000;

/// The processes that get the short slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heirs {
    /// The threads that the caller starts, and its children.
    All,
    /// Nobody but the caller: programs of users get the usual slice.
    Nobody,
}

/// Asks for the shortest slice there is. Linux before 6.12 takes the request and does not act on it.
///
/// # Errors
///
/// When the system refuses, as a filter of system calls may. Everything works without it.
#[cfg(target_os = "linux")]
pub fn shorten_slice(heirs: Heirs) -> std::io::Result<()> {
    // SAFETY: plain integers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_nice = rustix::process::getpriority_process(None)?;
    attributes.sched_runtime = SLICE_NANOSECONDS;
    if heirs == Heirs::Nobody {
        attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    }
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
pub fn shorten_slice(_: Heirs) -> std::io::Result<()> {
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

    /// The slice of a thread that `shorten_slice(heirs)` was called on, and of a child process of that thread.
    fn slices(heirs: Heirs) -> (u64, u64) {
        std::thread::spawn(move || {
            shorten_slice(heirs).unwrap();
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let slices = (slice_of(0), slice_of(child.id().try_into().unwrap()));
            child.kill().unwrap();
            child.wait().unwrap();
            slices
        })
        .join()
        .unwrap()
    }

    #[test]
    fn children_get_the_short_slice_or_the_usual_one() {
        let usual = std::thread::spawn(|| slice_of(0)).join().unwrap();
        let inherited = slices(Heirs::All);
        assert_eq!(inherited.0, inherited.1);
        let (own, child) = slices(Heirs::Nobody);
        assert_eq!(own, inherited.0);
        assert_eq!(child, usual);
    }
}
