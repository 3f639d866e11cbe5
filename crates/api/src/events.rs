//! The events of a command's output, sent as server-sent events. The events of sandboxes are in `event_log.rs`.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Server-sent event of a command. The stream is text; this schema describes its fields.
#[derive(Debug, ToSchema)]
pub struct ServerSentEvent {
    /// Kind of the event: `stdout`, `stderr`, `gap`, `exit`, `error` or `ended`.
    pub event: String,
    /// Offset in the command's output after this event. Send it as `Last-Event-ID` to resume the stream.
    pub id: String,
    /// `CommandEvent` as JSON.
    pub data: String,
}

/// Kind of an event of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandEventKind {
    /// Output on stdout.
    Stdout,
    /// Output on stderr.
    Stderr,
    /// Output was dropped before it was read.
    Gap,
    /// The command exited.
    Exit,
    /// The command could not be started, or was lost: its sandbox was removed, or its processes ended without a report.
    Error,
    /// The stream ended before the command, because the token expired or its key was revoked.
    Ended,
}

impl fmt::Display for CommandEventKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Gap => "gap",
            Self::Exit => "exit",
            Self::Error => "error",
            Self::Ended => "ended",
        })
    }
}

/// Event of a command. `exit`, `error` or `ended` is the last event of a stream.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandEvent<'a> {
    /// Kind of the event: `stdout`, `stderr`, `gap`, `exit`, `error` or `ended`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: CommandEventKind,
    /// Id of the command.
    #[schema(value_type = String)]
    pub command_id: Cow<'a, str>,
    /// Output as text. Absent if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub data: Option<Cow<'a, str>>,
    /// Output in base64. Only present if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Offset of the first byte in the output of the command. Only in `stdout` and `stderr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Offset of the first dropped byte. Only in `gap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Offset of the first byte after the dropped ones. Only in `gap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Exit code; 128 + n if the command was killed by signal n. Only in `exit` and `error`. In `error`, it is 126 if the
    /// working directory could not be entered, 127 if the program could not be executed, and -1 if the command was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if the command was killed by its timeout. Only in `exit` and `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<bool>,
    /// Reason why the command could not be started or was lost, or why the stream ended. Only in `error` and `ended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Id of the automatic snapshot after the command. Only in `exit`, if automatic snapshots are on (see `trace` of
    /// the sandbox) and files changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Reason why there is no automatic snapshot although automatic snapshots are on and files may have changed. Only
    /// in `exit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_error: Option<String>,
    /// Milliseconds since 1970-01-01 UTC.
    pub timestamp: i64,
}

impl<'a> CommandEvent<'a> {
    /// Creates an event with only its kind, command id and timestamp set.
    pub fn new(kind: CommandEventKind, command_id: &'a str, timestamp: i64) -> Self {
        Self {
            kind,
            command_id: Cow::Borrowed(command_id),
            data: None,
            data_base64: None,
            offset: None,
            from: None,
            to: None,
            exit_code: None,
            timed_out: None,
            message: None,
            snapshot: None,
            trace_error: None,
            timestamp,
        }
    }
}
