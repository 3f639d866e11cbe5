//! State machine of sandboxes.

use crate::string_enum::string_enum;

string_enum! {
    /// Stored state of a sandbox.
    pub enum State {
        /// Processes are being started.
        Starting = "starting",
        /// The guest agent is connected. A sandbox that is paused in memory is stored as running.
        Running = "running",
        /// Processes are being stopped.
        Stopping = "stopping",
        /// All processes have ended. Final, except for a sandbox that is paused to disk, which is stored as stopped:
        /// see [`Sandbox::can_become`](crate::Sandbox::can_become).
        Stopped = "stopped",
        /// A failure; the state's reason describes it.
        Error = "error",
    }
}

string_enum! {
    /// State of a sandbox as clients see it: it follows from its [`State`] and the step of its pause, see
    /// [`VisibleState::of`].
    pub enum VisibleState {
        /// Processes are being started.
        Starting = "starting",
        /// The guest agent is connected.
        Running = "running",
        /// The sandbox waits for a resume, in memory or on disk.
        Paused = "paused",
        /// Processes are being stopped.
        Stopping = "stopping",
        /// All processes have ended.
        Stopped = "stopped",
        /// A failure; the state's reason describes it.
        Error = "error",
    }
}

impl State {
    /// Returns whether a transition to `next` is allowed. [`Sandbox::can_become`](crate::Sandbox::can_become) allows
    /// more for a sandbox that is paused to disk.
    ///
    /// A sandbox whose processes are found dead goes to `stopped` without `stopping`. One in `error` because
    /// its guest agent was lost runs again when the agent reconnects.
    pub fn can_become(self, next: Self) -> bool {
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
    fn states_round_trip_as_strings() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse::<State>().unwrap(), *state);
        }
        let error = "Running".parse::<State>().unwrap_err();
        assert_eq!(error.to_string(), "`Running` is not a valid State");
    }

    #[test]
    fn stopped_is_final_and_no_state_repeats() {
        for state in State::ALL {
            assert!(!state.can_become(*state), "{state}");
            assert!(!State::Stopped.can_become(*state), "{state}");
        }
    }

    #[test]
    fn no_transition_leads_to_starting() {
        assert!(State::ALL.iter().all(|state| !state.can_become(State::Starting)));
        assert!(!State::Stopping.can_become(State::Running));
    }
}
