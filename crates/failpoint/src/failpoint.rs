//! Failpoints: named points in the code where a test can kill the process, fail a write or pause.
//!
//! The environment variable `WORKSPACE_FAILPOINT` selects a failpoint and its action, as `name=action[@n]`. The action
//! is performed once, when the process reaches the failpoint for the n-th time (by default the first):
//!
//! | action | effect |
//! |---|---|
//! | `kill` | SIGKILL to this process |
//! | `stop` | SIGSTOP to this process, which stops until the test sends SIGCONT |
//! | `panic` | panic |
//! | `enospc`, `eio` | [`hit`] returns this error |
//! | `pause` | sleep of 200 ms |
//!
//! If the variable has another form or names an unknown action, every call of [`hit`] panics. A name that no failpoint
//! has is not noticed. Without the feature `enabled`, [`hit`] does nothing.

use std::io;

/// Performs the action of the failpoint `name` if the environment selects it for this visit. Returns the error of
/// the actions `enospc` and `eio`.
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

/// Failpoint that the environment selects, and its action.
#[cfg(feature = "enabled")]
struct Plan {
    name: String,
    action: Action,
    /// Number of visits up to the one that performs the action, which is included.
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
    /// Parses `name=action[@n]`; `None` if the text has another form.
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
                // The signal is sent to this thread. With a signal to the process, this thread could continue until
                // another thread has handled it.
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
    fn malformed_plans_and_unknown_actions_are_rejected() {
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
