//! Failpoints: named points in the code where a test can kill the process, fail a write or pause.
//!
//! `WORKSPACE_FAILPOINT=name=action[@n]`: at the n-th visit (first by default) of `name`, `kill` the
//! process with SIGKILL, `panic`, return the error `enospc` or `eio`, `stop` the process until the test
//! continues it, or `pause` for 200 ms. Compiled to nothing without the feature `enabled`.

use std::io;

/// Performs the action of the failpoint `name` if the environment selects it for this visit.
#[cfg(feature = "enabled")]
pub fn hit(name: &str) -> io::Result<()> {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid};

    struct Plan {
        name: String,
        action: String,
        visits_left: AtomicU64,
    }
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("WORKSPACE_FAILPOINT").ok()?;
        let (name, rest) = text.split_once('=')?;
        let (action, nth) = rest.split_once('@').unwrap_or((rest, "1"));
        Some(Plan {
            name: name.to_owned(),
            action: action.to_owned(),
            visits_left: AtomicU64::new(nth.parse().ok()?),
        })
    });
    let Some(plan) = plan else { return Ok(()) };
    if plan.name != name || plan.visits_left.fetch_sub(1, Ordering::SeqCst) != 1 {
        return Ok(());
    }
    match plan.action.as_str() {
        "kill" => Ok(rustix::process::kill_process(getpid(), Signal::KILL)?),
        "stop" => {
            // Raised in this thread: another thread could handle a signal to the process, and this thread would
            // continue meanwhile.
            // SAFETY: the call takes an integer, and the default action of this signal cannot be changed.
            unsafe { libc::raise(libc::SIGSTOP) };
            Ok(())
        }
        "panic" => panic!("failpoint {name}"),
        "enospc" => Err(rustix::io::Errno::NOSPC.into()),
        "pause" => {
            std::thread::sleep(std::time::Duration::from_millis(200));
            Ok(())
        }
        _ => Err(rustix::io::Errno::IO.into()),
    }
}

/// Does nothing.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
#[expect(clippy::unnecessary_wraps, reason = "the same signature as with the feature")]
pub fn hit(_name: &str) -> io::Result<()> {
    Ok(())
}
