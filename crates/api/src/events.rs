//! The events of a command's output, sent as server-sent events.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A server-sent event. It is text on the wire; this only describes it.
#[derive(Debug, ToSchema)]
pub struct ServerSentEvent {
    /// Kind: stdout, stderr, gap, exit or error.
    pub event: String,
    /// Offset of the byte behind the event, for `Last-Event-ID`.
    pub id: String,
    /// A `CommandEvent` in JSON.
    pub data: String,
}

/// Kind of a command's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandEventKind {
    /// Output on stdout.
    Stdout,
    /// Output on stderr.
    Stderr,
    /// Output that is no longer kept.
    Gap,
    /// The command exited.
    Exit,
    /// The command could not be run.
    Error,
}

impl fmt::Display for CommandEventKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Gap => "gap",
            Self::Exit => "exit",
            Self::Error => "error",
        })
    }
}

/// An event of a command. Nothing follows `exit` and `error`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandEvent<'a> {
    /// Kind: stdout, stderr, gap, exit or error.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: CommandEventKind,
    /// Unique id of the command.
    #[schema(value_type = String)]
    pub command_id: Cow<'a, str>,
    /// Output as text, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub data: Option<Cow<'a, str>>,
    /// Output in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Offset of the first byte of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Offset of the first byte of a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Offset of the first byte behind a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Exit code of `exit` and `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if the command was ended by its timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed_out: Option<bool>,
    /// Reason of `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

impl<'a> CommandEvent<'a> {
    /// Creates an event that has nothing but its kind, command and time.
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
            timestamp,
        }
    }
}
