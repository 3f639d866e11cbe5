//! `/api/v1/sandboxes/{id}/pty`: terminals in a sandbox, and the messages of their WebSocket.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Request to open a terminal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenTerminal {
    /// Width in columns.
    #[schema(minimum = 1, maximum = 1000)]
    pub cols: u16,
    /// Height in rows.
    #[schema(minimum = 1, maximum = 1000)]
    pub rows: u16,
    /// Shell; by default `/bin/bash`, or `/bin/sh` where that does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Command line for `/bin/sh`, or for `shell` if that is given; without one the shell is interactive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Working directory; `/workspace` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
}

/// An open terminal.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminal {
    /// Unique id.
    pub id: String,
    /// URL of its WebSocket, which needs the same key.
    pub websocket_url: String,
}

/// New size of a terminal.
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

/// Options of a connection to a terminal.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConnectTerminalQuery {
    /// Offset of the first byte of output; by default all output that is kept.
    pub from: Option<u64>,
    /// Send output as binary messages instead of base64 in JSON.
    #[serde(default)]
    pub binary: bool,
}

/// A text message from the client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum TerminalRequest {
    /// Input for the terminal.
    Input {
        /// Bytes in base64.
        data: String,
    },
    /// Change of its size.
    Resize {
        /// Width in columns.
        cols: u16,
        /// Height in rows.
        rows: u16,
    },
    /// Request for a `pong`.
    Ping,
}

/// A text message from the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum TerminalEvent<'a> {
    /// Output of the terminal.
    Output {
        /// Bytes in base64.
        data: String,
        /// Offset of the first byte.
        offset: u64,
    },
    /// The shell exited. Nothing follows.
    #[serde(rename_all = "camelCase")]
    Exit {
        /// Exit code of the shell.
        exit_code: i32,
    },
    /// Response to a `ping`.
    Pong,
    /// A request of the client failed.
    Error {
        /// Explanation for people.
        message: Cow<'a, str>,
    },
}
