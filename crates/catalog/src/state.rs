//! The states of a sandbox and the ways between them.

use crate::words::words;

words! {
    /// What a sandbox is doing.
    pub enum State {
        /// Its processes are being started.
        Starting = "starting",
        /// Its guest agent is connected.
        Running = "running",
        /// Its processes are being ended.
        Stopping = "stopping",
        /// Its processes have ended. The last state.
        Stopped = "stopped",
        /// Something failed; the reason says what.
        Error = "error",
    }
}

impl State {
    /// Whether a sandbox in this state may go to `next`.
    ///
    /// A sandbox found dead goes to `stopped` without `stopping`. One in `error` because its guest agent was
    /// lost runs again when the agent comes back.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Starting => matches!(next, Self::Running | Self::Stopping | Self::Stopped | Self::Error),
            Self::Running => matches!(next, Self::Stopping | Self::Stopped | Self::Error),
            Self::Stopping => matches!(next, Self::Stopped | Self::Error),
            Self::Error => matches!(next, Self::Running | Self::Stopping | Self::Stopped),
            Self::Stopped => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_word_that_leads_back_to_it() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse::<State>().unwrap(), *state);
        }
        let error = "Running".parse::<State>().unwrap_err();
        assert_eq!(error.to_string(), "`Running` is no State");
    }

    #[test]
    fn no_state_becomes_itself_and_nothing_follows_stopped() {
        for state in State::ALL {
            assert!(!state.may_become(*state), "{state}");
            assert!(!State::Stopped.may_become(*state), "{state}");
        }
    }

    #[test]
    fn nothing_starts_again() {
        assert!(State::ALL.iter().all(|state| !state.may_become(State::Starting)));
        assert!(!State::Stopping.may_become(State::Running));
    }
}
