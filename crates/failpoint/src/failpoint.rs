//! Failpoints: named points in the code where a test can kill the process, fail a write or pause.
//!
//! `WORKSPACE_FAILPOINT=name=action[@n]`: at the n-th visit (first by default) of `name`, `kill` the
//! process with SIGKILL, `panic`, return the error `enospc` or `eio`, `stop` the process until the test
//! continues it, or `pause` for 200 ms. Any other text is a panic at the first visit of any failpoint. Compiled to
//! nothing without the feature `enabled`.

use std::io;

/// Performs the action of the failpoint `name` if the environment selects it for this visit.
#[cfg(feature = "enabled")]
pub fn hit(name: &str) -> io::Result<()> {
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("WORKSPACE_FAILPOINT").ok()?;
        let plan = Plan::parse(&text);
        Some(plan.unwrap_or_else(|| panic!("WORKSPACE_FAILPOINT is `{text}`, not `name=action[@n]`")))
    });
    let Some(plan) = plan else { return Ok(()) };
    if plan.name != name || plan.visits_left.fetch_sub(1, Ordering::SeqCst) != 1 {
        return Ok(());
    }
    plan.action.perform(name)
}

/// Failpoint that the environment selects.
#[cfg(feature = "enabled")]
struct Plan {
    name: String,
    action: Action,
    /// Number of visits until the action, the last one included.
    visits_left: std::sync::atomic::AtomicU64,
}

#[cfg(feature = "enabled")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
    Panic,
    Enospc,
    Eio,
    Pause,
}

#[cfg(feature = "enabled")]
impl Plan {
    fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('=')?;
        let (action, visit) = rest.split_once('@').unwrap_or((rest, "1"));
        let action = match action {
            "kill" => Action::Kill,
            "stop" => Action::Stop,
            "panic" => Action::Panic,
            "enospc" => Action::Enospc,
            "eio" => Action::Eio,
            "pause" => Action::Pause,
            _ => return None,
        };
        let visit = visit.parse::<u64>().ok().filter(|visit| *visit > 0)?;
        Some(Self { name: name.to_owned(), action, visits_left: visit.into() })
    }
}

#[cfg(feature = "enabled")]
impl Action {
    fn perform(self, name: &str) -> io::Result<()> {
        use rustix::process::{Signal, getpid, kill_process};

        match self {
            Self::Kill => Ok(kill_process(getpid(), Signal::KILL)?),
            Self::Stop => {
                // Raised in this thread: another thread could handle a signal to the process, and this thread would
                // continue meanwhile.
                // SAFETY: the call takes an integer, and the default action of this signal cannot be changed.
                unsafe { libc::raise(libc::SIGSTOP) };
                Ok(())
            }
            Self::Panic => panic!("failpoint {name}"),
            Self::Enospc => Err(rustix::io::Errno::NOSPC.into()),
            Self::Eio => Err(rustix::io::Errno::IO.into()),
            Self::Pause => {
                std::thread::sleep(std::time::Duration::from_millis(200));
                Ok(())
            }
        }
    }
}

/// Does nothing.
#[cfg(not(feature = "enabled"))]
#[inline(always)]
#[expect(clippy::unnecessary_wraps, reason = "the same signature as with the feature")]
pub fn hit(_name: &str) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, feature = "enabled"))]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_failpoint_is_rejected() {
        let plan = Plan::parse("log-write=eio@5").unwrap();
        assert_eq!(
            (plan.name.as_str(), plan.action, plan.visits_left.into_inner()),
            ("log-write", Action::Eio, 5)
        );
        assert_eq!(Plan::parse("log-write=kill").unwrap().visits_left.into_inner(), 1);
        for wrong in
            ["", "log-write", "log-write=eoi", "log-write=kill@", "log-write=kill@0", "log-write=kill@x"]
        {
            assert!(Plan::parse(wrong).is_none(), "{wrong}");
        }
    }
}
