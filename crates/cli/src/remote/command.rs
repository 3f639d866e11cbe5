//! Commands in a sandbox on a server.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::Method;
use workspace_api::error_codes;
use workspace_api::processes::{BackgroundCommand, CommandInput, KillCommand, Overflow, RunCommand};

use super::backoff::Backoff;
use super::output::OutputFollower;
use super::{Client, RequestError};
use crate::error::{CommandError, Result};
use crate::session::{InputState, Session};

/// Maximum number of bytes of input in one request; the server limits the size of its body.
pub(super) const INPUT_REQUEST_MAX: usize = 1 << 20;

/// Command to run.
#[derive(Debug, Default)]
pub(crate) struct CommandOptions {
    /// Command line for `/bin/sh`.
    pub(crate) command_line: String,
    pub(crate) tag: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) envs: BTreeMap<String, String>,
    /// Timeout in milliseconds; 0 for the lifetime of the sandbox.
    pub(crate) timeout: u64,
    /// True if stdin of the command is kept open for input.
    pub(crate) stdin: bool,
    /// True if the CLI does not read the output. The server then drops the oldest output instead of blocking the
    /// command.
    pub(crate) is_detached: bool,
    /// User that runs the command; `None` for the user of the sandbox.
    pub(crate) user: Option<String>,
}

/// State of stdin of a command after input was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterInput {
    KeepOpen,
    Close,
}

/// A command that was started.
pub(crate) struct RemoteCommand<'a> {
    client: &'a Client,
    pub(crate) id: String,
    /// Path of the command in the API.
    path: String,
}

impl<'a> RemoteCommand<'a> {
    /// Starts a command.
    pub(crate) async fn start(client: &'a Client, sandbox: &str, options: CommandOptions) -> Result<Self> {
        let body = RunCommand {
            command: Some(options.command_line),
            tag: options.tag,
            cwd: options.cwd,
            user: options.user,
            envs: options.envs,
            timeout: Some(options.timeout),
            stdin: options.stdin,
            overflow: if options.is_detached { Overflow::Drop } else { Overflow::Block },
            // The output is requested by the command's id, which also works after a lost connection.
            background: true,
            ..RunCommand::default()
        };
        let process = format!("/api/v1/sandboxes/{sandbox}/process");
        let started: BackgroundCommand = client.post(&format!("{process}/run"), &body).await?;
        Ok(Self { client, path: format!("{process}/{}", started.command_id), id: started.command_id })
    }

    /// Returns the output of the command from the first byte on.
    pub(crate) fn output(&self) -> OutputFollower<'a> {
        OutputFollower::new(self.client, format!("{}/output", self.path))
    }

    /// Sends input, with retries.
    async fn send_input(&self, data: &[u8], after: AfterInput) -> Result<InputState> {
        let path = format!("{}/stdin", self.path);
        let close = after == AfterInput::Close;
        let mut rest = data;
        let mut backoff = Backoff::default();
        loop {
            let body = CommandInput { data: None, data_base64: Some(BASE64_STANDARD.encode(rest)), close };
            let failure = match self.client.try_post(&path, &body).await {
                Ok(()) => return Ok(InputState::Open),
                Err(failure) => failure,
            };
            if failure.is(error_codes::COMMAND_NOT_RUNNING) || failure.is(error_codes::STDIN_CLOSED) {
                return Ok(InputState::Closed);
            }
            if let Some(reason) = uncertain(&failure) {
                let hint = "part of the input may be missing; the command keeps running: see `workspace ps`";
                return Err(CommandError::failed(reason).hint(hint));
            }
            // The server may have accepted the first bytes.
            if let RequestError::Api(error) = &failure {
                rest = &rest[error.written.min(rest.len())..];
            }
            if !failure.is_transient() || !backoff.wait_for_retry().await {
                return Err(self.client.explain(failure));
            }
        }
    }
}

impl Session for RemoteCommand<'_> {
    const INPUT_MAX: usize = INPUT_REQUEST_MAX;

    async fn write_input(&self, data: Vec<u8>) -> Result<InputState> {
        self.send_input(&data, AfterInput::KeepOpen).await
    }

    async fn close_input(&self) -> Result<()> {
        self.send_input(&[], AfterInput::Close).await.map(|_| ())
    }

    async fn kill(&self, signal: i32) -> Result<()> {
        let body = KillCommand { signal: Some(signal) };
        match self
            .client
            .request_with_timeout(Method::POST, &format!("{}/kill", self.path), Some(&body))
            .await
        {
            Ok(()) => Ok(()),
            Err(failure) if failure.is(error_codes::COMMAND_NOT_RUNNING) => Ok(()),
            Err(failure) => Err(self.client.explain(failure)),
        }
    }
}

/// Returns the reason if the error leaves open whether input arrived. Such input is not sent again, because the command
/// might read it twice.
fn uncertain(failure: &RequestError) -> Option<String> {
    match failure {
        RequestError::Disconnected(reason) => {
            Some(format!("lost the connection to the server while input was sent: {reason}"))
        }
        RequestError::Api(error) if failure.is(error_codes::STDIN_UNCERTAIN) => Some(error.message.clone()),
        _ => None,
    }
}
