//! Signals to this program.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CommandError, Result};

/// SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs handlers, so that the signals do not end the program any more.
    pub(crate) fn new() -> Result<Self> {
        let take = |kind| signal(kind).map_err(|error| failed(&error));
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal and returns its number.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.hangup.recv() => SignalKind::hangup().as_raw_value(),
        }
    }
}

/// Creates the error for a signal handler that could not be installed.
pub(crate) fn failed(error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot handle signals: {error}"))
        .hint("the system may have run out of open files")
}
