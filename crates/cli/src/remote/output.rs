//! Follows the output of a command over lost connections, without gaps or repetitions.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::HeaderName;
use tokio::time::timeout;
use workspace_api::events::{CommandEvent, CommandEventKind};

use super::backoff::Backoff;
use super::events::{EVENT_MAX, Event, Parser, TooLong};
use super::{Client, RequestError};
use crate::error::{CommandError, Result};

/// Idle timeout. The server sends a comment every 15 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Event of a command.
pub(crate) enum OutputEvent {
    /// Output.
    Printed { to: To, data: Vec<u8>, time: i64 },
    /// Output that is no longer kept.
    Gap { from: u64, to: u64 },
    /// The command ended. Nothing follows.
    Ended(End),
}

/// Output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Stdout,
    Stderr,
}

/// End of a command.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) exit_code: i32,
    pub(crate) timed_out: bool,
    /// Reason for which it could not be run.
    pub(crate) failed: Option<String>,
}

/// Follows a command.
pub(crate) struct Follower<'a> {
    client: &'a Client,
    path: String,
    /// The id of the last event that was given out.
    last: Option<String>,
    stream: Option<(Incoming, Parser)>,
    backoff: Backoff,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(client: &'a Client, sandbox: &str, command: &str) -> Self {
        let path = format!("/api/v1/sandboxes/{sandbox}/process/{command}/output");
        Self { client, path, last: None, stream: None, backoff: Backoff::default() }
    }

    /// Returns the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<OutputEvent> {
        loop {
            let Some((body, parser)) = &mut self.stream else {
                self.connect().await?;
                continue;
            };
            match parser.next() {
                Ok(Some(event)) => return self.take(event),
                Ok(None) => {}
                Err(TooLong) => {
                    return Err(CommandError::failed(format!(
                        "the server sent an event of more than {} MiB",
                        EVENT_MAX >> 20
                    )));
                }
            }
            match timeout(IDLE_TIMEOUT, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        parser.push(&bytes);
                        self.backoff.reset();
                    }
                }
                // Half an event that came is forgotten with its connection; all of it comes again.
                Ok(Some(Err(_)) | None) | Err(_) => {
                    self.lost(RequestError::Disconnected("the connection broke".to_owned()))?;
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<()> {
        self.backoff.wait().await;
        let header = self.last.clone().map(|last| (HeaderName::from_static("last-event-id"), last));
        match self.client.open(&self.path, header).await {
            Ok(body) => self.stream = Some((body, Parser::default())),
            Err(failure) => self.lost(failure)?,
        }
        Ok(())
    }

    fn lost(&mut self, failure: RequestError) -> Result<()> {
        self.stream = None;
        if failure.may_pass() && self.backoff.should_retry() {
            Ok(())
        } else {
            Err(self.client.explain(failure))
        }
    }

    fn take(&mut self, event: Event) -> Result<OutputEvent> {
        let did = read(&event.data).ok_or_else(|| {
            CommandError::failed("the server sent an event that is not understood")
                .hint("it may be newer than this command")
        })?;
        if event.id.is_some() {
            self.last = event.id;
        }
        Ok(did)
    }
}

fn read(data: &[u8]) -> Option<OutputEvent> {
    let event: CommandEvent<'_> = serde_json::from_slice(data).ok()?;
    Some(match event.kind {
        CommandEventKind::Stdout => printed(To::Stdout, event)?,
        CommandEventKind::Stderr => printed(To::Stderr, event)?,
        CommandEventKind::Gap => OutputEvent::Gap { from: event.from?, to: event.to? },
        CommandEventKind::Exit | CommandEventKind::Error => OutputEvent::Ended(End {
            exit_code: event.exit_code.unwrap_or(-1),
            timed_out: event.timed_out.unwrap_or(false),
            failed: (event.kind == CommandEventKind::Error).then(|| event.message.unwrap_or_default()),
        }),
    })
}

fn printed(to: To, event: CommandEvent<'_>) -> Option<OutputEvent> {
    let data = match (event.data, event.data_base64) {
        (Some(text), _) => text.into_owned().into_bytes(),
        (None, Some(base64)) => BASE64_STANDARD.decode(base64).ok()?,
        (None, None) => return None,
    };
    Some(OutputEvent::Printed { to, data, time: event.timestamp })
}
