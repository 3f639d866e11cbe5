//! Output of a command on a server, without gaps or repetitions when connections break.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use workspace_api::error_codes;
use workspace_api::events::{CommandEvent, CommandEventKind};

use super::Client;
use super::event_source::{EventSource, unknown_event};
use crate::error::{CommandError, Result};
use crate::session::{CommandExit, OutputEvent, OutputStream, Stream};

/// Reader of a command's output that reconnects when the connection breaks.
pub(crate) struct OutputFollower<'a> {
    client: &'a Client,
    source: EventSource<'a>,
}

impl<'a> OutputFollower<'a> {
    /// Creates a reader for the output at this path of the API.
    pub(super) fn new(client: &'a Client, path: String) -> Self {
        Self { client, source: EventSource::new(client, path) }
    }

    /// Creates a reader for the output of a command that another process started.
    pub(crate) fn of_command(client: &'a Client, sandbox: &str, command: &str) -> Self {
        Self::new(client, format!("/api/v1/sandboxes/{sandbox}/process/{command}/output"))
    }

    /// Returns the offset after the output that was read: the id of the last event.
    pub(crate) fn offset(&self) -> u64 {
        self.source.last_event_id().and_then(|id| id.parse().ok()).unwrap_or(0)
    }

    /// Returns the next event before the offset `end`; `None` when everything before it was read. Output after it is
    /// cut off. Cancel safe.
    pub(crate) async fn next_before(&mut self, end: u64) -> Result<Option<OutputEvent>> {
        if self.offset() >= end {
            return Ok(None);
        }
        let mut event = self.next().await?;
        if let OutputEvent::Data { data, .. } = &mut event {
            let excess = usize::try_from(self.offset().saturating_sub(end)).unwrap_or(usize::MAX);
            data.truncate(data.len().saturating_sub(excess));
        }
        Ok(Some(event))
    }

    /// Passes the output of a command before the offset `end` to `add`, piece by piece, each with its time in
    /// milliseconds since 1970. Passes nothing if the server no longer has the output or the command.
    pub(crate) async fn read_retained(mut self, end: u64, mut add: impl FnMut(i64, Vec<u8>)) -> Result<()> {
        match self.source.connect().await {
            Ok(()) => {}
            Err(failure) if failure.is(error_codes::OUTPUT_UNAVAILABLE) => return Ok(()),
            Err(failure) if failure.is(error_codes::COMMAND_NOT_FOUND) => return Ok(()),
            Err(failure) => return Err(self.client.explain(failure)),
        }
        while let Some(event) = self.next_before(end).await? {
            match event {
                OutputEvent::Data { data, time, .. } => add(time, data),
                OutputEvent::Gap { .. } => {}
                OutputEvent::Exited(_) => break,
            }
        }
        Ok(())
    }
}

impl OutputStream for OutputFollower<'_> {
    /// Cancel safe.
    async fn next(&mut self) -> Result<OutputEvent> {
        let event = self.source.next().await?;
        output_event(&event.data).ok_or_else(unknown_event)?
    }
}

/// Converts an event; `None` if it is unknown, and an error if the server ended the stream before the command.
fn output_event(data: &[u8]) -> Option<Result<OutputEvent>> {
    let event: CommandEvent<'_> = serde_json::from_slice(data).ok()?;
    Some(Ok(match event.kind {
        CommandEventKind::Stdout => data_event(Stream::Stdout, event)?,
        CommandEventKind::Stderr => data_event(Stream::Stderr, event)?,
        CommandEventKind::Gap => OutputEvent::Gap { from: event.from?, to: event.to? },
        CommandEventKind::Exit | CommandEventKind::Error => OutputEvent::Exited(CommandExit {
            exit_code: event.exit_code.unwrap_or(-1),
            timed_out: event.timed_out.unwrap_or(false),
            failure_reason: (event.kind == CommandEventKind::Error)
                .then(|| event.message.unwrap_or_default()),
        }),
        CommandEventKind::Ended => {
            let reason = event.message.unwrap_or_default();
            return Some(Err(CommandError::failed(format!("the server ended the output: {reason}"))));
        }
    }))
}

fn data_event(stream: Stream, event: CommandEvent<'_>) -> Option<OutputEvent> {
    let data = match (event.data, event.data_base64) {
        (Some(text), _) => text.into_owned().into_bytes(),
        (None, Some(base64)) => BASE64_STANDARD.decode(base64).ok()?,
        (None, None) => return None,
    };
    Some(OutputEvent::Data { stream, data, time: event.timestamp })
}
