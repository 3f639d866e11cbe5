//! Input of a command.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::mpsc;
use workspace_api::error_codes;
use workspace_api::processes::CommandInput;

use super::Client;
use super::backoff::Backoff;
use crate::error::{CommandError, Result};
use crate::stdin::READ;

/// Largest number of bytes in one request, whose body is limited.
pub(super) const INPUT_MAX: usize = 1 << 20;

/// The input of a command.
pub(super) struct Input<'a> {
    client: &'a Client,
    path: String,
}

impl<'a> Input<'a> {
    pub(super) fn new(client: &'a Client, sandbox: &str, command: &str) -> Self {
        Self { client, path: format!("/api/v1/sandboxes/{sandbox}/process/{command}/stdin") }
    }

    /// Forwards all input, then closes stdin.
    pub(super) async fn pass(&self, mut from: mpsc::Receiver<Vec<u8>>) -> Result<()> {
        while let Some(mut piece) = from.recv().await {
            while piece.len() + READ <= INPUT_MAX
                && let Ok(more) = from.try_recv()
            {
                piece.extend_from_slice(&more);
            }
            if !self.give(&piece, false).await? {
                return Ok(());
            }
        }
        self.give(&[], true).await.map(|_| ())
    }

    /// Writes a piece. Returns false if the command reads no more.
    pub(super) async fn give(&self, data: &[u8], close: bool) -> Result<bool> {
        let mut left = data;
        let mut backoff = Backoff::default();
        loop {
            backoff.wait().await;
            let body = CommandInput { data: None, data_base64: Some(BASE64_STANDARD.encode(left)), close };
            let failure = match self.client.try_post(&self.path, &body).await {
                Ok(()) => return Ok(true),
                Err(failure) => failure,
            };
            if failure.is(error_codes::COMMAND_NOT_RUNNING) || failure.is(error_codes::STDIN_CLOSED) {
                return Ok(false);
            }
            // Whether a request without an answer was done cannot be known, and twice would be wrong.
            let why = match &failure {
                super::RequestError::Disconnected(why) => {
                    Some(format!("lost the server while it was given input: {why}"))
                }
                super::RequestError::Api(error) if failure.is(error_codes::STDIN_UNCERTAIN) => {
                    Some(error.message.clone())
                }
                _ => None,
            };
            if let Some(why) = why {
                let hint = "part of the input may be missing; the command runs on: see `workspace ps`";
                return Err(CommandError::failed(why).hint(hint));
            }
            // Of what was refused the beginning may have been taken.
            if let super::RequestError::Api(error) = &failure {
                left = &left[error.written.min(left.len())..];
            }
            if !failure.may_pass() || !backoff.should_retry() {
                return Err(self.client.explain(failure));
            }
        }
    }
}
