//! `/api/v1/sandboxes/{id}/pty`: terminals in a sandbox, and the messages of their WebSocket.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Request to open a terminal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cols": 80, "rows": 24}))]
pub struct OpenTerminal {
    /// Width in columns.
    #[schema(minimum = 1, maximum = 1000)]
    pub cols: u16,
    /// Height in rows.
    #[schema(minimum = 1, maximum = 1000)]
    pub rows: u16,
    /// Path of the shell. Default: `/bin/bash`, or with `command` `/bin/sh`. A shell that does not exist or cannot be
    /// executed is replaced by `/bin/sh`, without an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Command line for `/bin/sh`, or for `shell` if it is given. Without one, the shell is interactive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Working directory. Default: `/workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables, in addition to those of the sandbox.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// User that runs the shell: a name in `/etc/passwd` of the sandbox, or a user id. Users other than `sandbox` need
    /// a sandbox with `root: kept` and a server that runs as root with the runtime `embedded`; otherwise the request
    /// fails with the error code `USER_UNAVAILABLE`. Default: `sandbox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "root", min_length = 1, max_length = 256)]
    pub user: Option<String>,
}

/// Open terminal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    /// Id of the terminal.
    pub id: String,
    /// URL of the WebSocket of the terminal. Connecting to it requires a key of the same owner, a token with the right
    /// `terminal`, or a ticket.
    pub websocket_url: String,
}

/// Request to resize a terminal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeTerminal {
    /// Width in columns.
    #[schema(minimum = 1, maximum = 1000)]
    pub cols: u16,
    /// Height in rows.
    #[schema(minimum = 1, maximum = 1000)]
    pub rows: u16,
}

/// Request for a ticket to a terminal.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"readOnly": true}))]
pub struct CreateTicket {
    /// Allows only reading the output: no input, and no new size. Default: false.
    #[serde(default)]
    pub read_only: bool,
}

/// Ticket for one connection to a terminal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalTicket {
    /// Secret to send as `?ticket=TICKET` to the WebSocket of the terminal, once.
    #[schema(example = "wtt_Zm9ydHktdHdvIHJhbmRvbSBieXRlcyBpbiBhIHJvdy4")]
    pub ticket: String,
    /// Time at which the ticket expires, if it has not been used.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// Options of a connection to a terminal.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConnectTerminalQuery {
    /// Offset of the first byte of output. Default: the start of the retained output.
    pub from: Option<u64>,
    /// Sends output as binary messages instead of base64 in JSON. Default: false.
    #[serde(default)]
    pub binary: bool,
    /// Ticket, instead of a key: browsers cannot send headers when they open a WebSocket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
}

/// Text message from the client of a terminal. A binary message is input.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum TerminalClientMessage {
    /// Input for the terminal.
    Input {
        /// Bytes in base64.
        data: String,
    },
    /// New size of the terminal.
    Resize {
        /// Width in columns.
        cols: u16,
        /// Height in rows.
        rows: u16,
    },
    /// Request for a `pong`.
    Ping,
}

/// Text message from the server to the client of a terminal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum TerminalServerMessage<'a> {
    /// Output of the terminal.
    Output {
        /// Bytes in base64.
        data: String,
        /// Offset of the first byte in the output of the terminal.
        offset: u64,
    },
    /// Output that is no longer retained. The next output begins at `to`, also in binary messages.
    Gap {
        /// Offset of the first missing byte.
        from: u64,
        /// Offset of the byte after the gap.
        to: u64,
    },
    /// The shell exited. This is the last message.
    #[serde(rename_all = "camelCase")]
    Exit {
        /// Exit code of the shell.
        exit_code: i32,
    },
    /// Response to a `ping`.
    Pong,
    /// A message of the client could not be processed, the shell could not be run or was lost, or its output could not
    /// be read.
    Error {
        /// Human-readable message.
        message: Cow<'a, str>,
    },
}
