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
    /// Installs handlers, so that the signals no longer terminate the program.
    pub(crate) fn new() -> Result<Self> {
        let install = |kind| signal(kind).map_err(|error| handler_error(&error));
        Ok(Self {
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
            hangup: install(SignalKind::hangup())?,
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
pub(crate) fn handler_error(error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot handle signals: {error}"))
        .hint("the system may be out of file descriptors")
}
