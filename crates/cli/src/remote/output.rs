//! Output of a command on a server, without gaps or repetitions when connections break.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::HeaderName;
use tokio::time::timeout;
use workspace_api::error_codes;
use workspace_api::events::{CommandEvent, CommandEventKind};

use super::backoff::Backoff;
use super::events::{EVENT_MAX, Event, Parser, TooLong};
use super::{Client, RequestError};
use crate::error::{CommandError, Result};
use crate::session::{CommandExit, OutputEvent, OutputStream, Stream};

/// Idle timeout. The server sends a comment every 15 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// Reader of a command's output that reconnects when the connection breaks.
pub(crate) struct OutputFollower<'a> {
    client: &'a Client,
    path: String,
    /// Id of the last event that was returned; a new connection resumes after it.
    last_event_id: Option<String>,
    stream: Option<(Incoming, Parser)>,
    backoff: Backoff,
}

impl<'a> OutputFollower<'a> {
    /// Creates a reader for the output at this path of the API.
    pub(super) fn new(client: &'a Client, path: String) -> Self {
        Self { client, path, last_event_id: None, stream: None, backoff: Backoff::default() }
    }

    /// Creates a reader for the output of a command that another process started.
    pub(crate) fn of_command(client: &'a Client, sandbox: &str, command: &str) -> Self {
        Self::new(client, format!("/api/v1/sandboxes/{sandbox}/process/{command}/output"))
    }

    /// Passes the retained output of a command to `add` as it is read, with its times. Reading stops when the command
    /// has exited, or when no output arrives for `idle`.
    pub(crate) async fn read_retained(
        mut self,
        idle: Duration,
        mut add: impl FnMut(i64, Vec<u8>),
    ) -> Result<()> {
        match self.client.open(&self.path, None).await {
            Ok(body) => self.stream = Some((body, Parser::default())),
            Err(failure) if failure.is(error_codes::OUTPUT_UNAVAILABLE) => return Ok(()),
            Err(failure) if failure.is(error_codes::COMMAND_NOT_FOUND) => return Ok(()),
            Err(failure) => return Err(self.client.explain(failure)),
        }
        while let Ok(event) = timeout(idle, self.next()).await {
            match event? {
                OutputEvent::Data { data, time, .. } => add(time, data),
                OutputEvent::Gap { .. } => {}
                OutputEvent::Exited(_) => break,
            }
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<()> {
        let header = self.last_event_id.clone().map(|id| (HeaderName::from_static("last-event-id"), id));
        match self.client.open(&self.path, header).await {
            Ok(body) => self.stream = Some((body, Parser::default())),
            Err(failure) => self.disconnect(failure).await?,
        }
        Ok(())
    }

    /// Drops the connection and waits for the backoff. Fails if the error is not transient, or retries are used up.
    async fn disconnect(&mut self, failure: RequestError) -> Result<()> {
        self.stream = None;
        if failure.is_transient() && self.backoff.wait_for_retry().await {
            Ok(())
        } else {
            Err(self.client.explain(failure))
        }
    }

    fn parse(&mut self, event: Event) -> Result<OutputEvent> {
        let parsed = output_event(&event.data).ok_or_else(|| {
            CommandError::failed("the server sent an unknown event")
                .hint("the server may be newer than this command")
        })?;
        if event.id.is_some() {
            self.last_event_id = event.id;
        }
        Ok(parsed)
    }
}

impl OutputStream for OutputFollower<'_> {
    /// Cancel safe.
    async fn next(&mut self) -> Result<OutputEvent> {
        loop {
            let Some((body, parser)) = &mut self.stream else {
                self.connect().await?;
                continue;
            };
            match parser.next() {
                Ok(Some(event)) => return self.parse(event),
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
                // An event that was received in part is dropped with its connection, and sent again as a whole.
                Ok(Some(Err(_)) | None) | Err(_) => {
                    self.disconnect(RequestError::Disconnected("the connection was lost".to_owned())).await?;
                }
            }
        }
    }
}

fn output_event(data: &[u8]) -> Option<OutputEvent> {
    let event: CommandEvent<'_> = serde_json::from_slice(data).ok()?;
    Some(match event.kind {
        CommandEventKind::Stdout => data_event(Stream::Stdout, event)?,
        CommandEventKind::Stderr => data_event(Stream::Stderr, event)?,
        CommandEventKind::Gap => OutputEvent::Gap { from: event.from?, to: event.to? },
        CommandEventKind::Exit | CommandEventKind::Error => OutputEvent::Exited(CommandExit {
            exit_code: event.exit_code.unwrap_or(-1),
            timed_out: event.timed_out.unwrap_or(false),
            start_error: (event.kind == CommandEventKind::Error).then(|| event.message.unwrap_or_default()),
        }),
    })
}

fn data_event(stream: Stream, event: CommandEvent<'_>) -> Option<OutputEvent> {
    let data = match (event.data, event.data_base64) {
        (Some(text), _) => text.into_owned().into_bytes(),
        (None, Some(base64)) => BASE64_STANDARD.decode(base64).ok()?,
        (None, None) => return None,
    };
    Some(OutputEvent::Data { stream, data, time: event.timestamp })
}
