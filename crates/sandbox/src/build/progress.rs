//! Reports of a build to its client.

use tokio::sync::mpsc;
use workspace_state::Cancel;

use crate::command::output::Stream;
use crate::error::{Result, SandboxError};
use crate::lifecycle::cancellable::or_cancelled;

/// Report of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEvent {
    /// A step begins.
    Step {
        /// Number of the step, from 1.
        number: usize,
        /// Number of all steps.
        total: usize,
        /// Description in one line.
        text: String,
    },
    /// The result of the step is kept from an earlier build, so the step need not run.
    Cached {
        /// Number of the step, from 1.
        number: usize,
    },
    /// Output of the command of the step.
    Output {
        /// Stream that it was written to.
        stream: Stream,
        /// The bytes.
        data: Vec<u8>,
    },
}

/// Sender of reports, which drops output beyond a limit.
#[derive(Debug)]
pub(super) struct Reports {
    sender: mpsc::Sender<BuildEvent>,
    cancel: Cancel,
    /// Number of bytes of output that may still be sent.
    output_left: u64,
    limit: u64,
}

impl Reports {
    pub(super) fn new(sender: mpsc::Sender<BuildEvent>, limit: u64, cancel: &Cancel) -> Self {
        Self { sender, cancel: cancel.clone(), output_left: limit, limit }
    }

    /// Sends a report, and waits while the client does not read. Fails if the client is gone.
    pub(super) async fn send(&self, event: BuildEvent) -> Result<()> {
        or_cancelled(&self.cancel, self.sender.send(event)).await?.map_err(|_| SandboxError::Cancelled)
    }

    /// Sends output, unless the limit is reached.
    pub(super) async fn output(&mut self, stream: Stream, mut data: Vec<u8>) -> Result<()> {
        if self.output_left == 0 || data.is_empty() {
            return Ok(());
        }
        let left = usize::try_from(self.output_left).unwrap_or(usize::MAX);
        data.truncate(left);
        self.output_left -= data.len() as u64;
        self.send(BuildEvent::Output { stream, data }).await?;
        if self.output_left == 0 {
            let limit = self.limit;
            self.note(&format!(
                "the build has written {limit} bytes (MAX_BUILD_OUTPUT); the rest is not shown"
            ))
            .await?;
        }
        Ok(())
    }

    /// Sends a line about the build itself.
    pub(super) async fn note(&self, text: &str) -> Result<()> {
        let data = format!("{text}\n").into_bytes();
        self.send(BuildEvent::Output { stream: Stream::Stderr, data }).await
    }
}
