//! `/api/v1/sandboxes/{id}/process` and `processes`: commands in a sandbox, and the processes that they started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Request to run a command with `/bin/sh -c`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunCommand {
    /// Command line.
    #[schema(example = "echo hello", min_length = 1)]
    pub command: String,
    /// Working directory; `/workspace` by default.
    pub cwd: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Timeout in milliseconds, after which the command is ended; 0 for none.
    #[schema(maximum = 2147483647)]
    pub timeout: Option<u64>,
    /// Respond with a stream of events instead of the result.
    #[serde(default)]
    pub stream: bool,
    /// Respond at once, with the command's id alone.
    #[serde(default)]
    pub background: bool,
    /// Largest number of bytes of output in the result; fewer if the responses of one owner that wait to be sent would
    /// have more than 128 MiB of JSON together. `truncated` says so.
    #[schema(maximum = 67108864)]
    pub max_output_size: Option<u64>,
    /// Keep the command's stdin open, to be written by `stdin`.
    #[serde(default)]
    pub stdin: bool,
    /// Policy for output that exceeds the buffer before it is read.
    #[serde(default)]
    pub overflow: Overflow,
    /// End the command if the client disconnects before it exits.
    #[serde(default)]
    pub kill_on_disconnect: bool,
}

/// Policy for output that exceeds the buffer before it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// The oldest output is dropped; readers get a `gap` event.
    #[default]
    Drop,
    /// The command blocks until output is read.
    Block,
}

/// Result of a command that exited.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandResult {
    /// Unique id of the command.
    pub command_id: String,
    /// Exit code; 128 + n for a program that signal n ended.
    pub exit_code: i32,
    /// Stdout as text, in which bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Stderr as text, in which bytes that are not UTF-8 are replaced.
    pub stderr: String,
    /// All of stdout in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// All of stderr in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// True if there was more output. The rest is in the command's `output`.
    pub truncated: bool,
}

/// A command that was started in the background.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedCommand {
    /// Unique id of the command.
    pub command_id: String,
}

/// A command.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Unique id of the command.
    pub command_id: String,
    /// Command line, at most its first 4096 bytes.
    pub command: String,
    /// True if the command line is longer.
    pub command_truncated: bool,
    /// Working directory, if one was given.
    pub cwd: Option<String>,
    /// State: running, exited or failed.
    pub state: String,
    /// Exit code, once it exited.
    pub exit_code: Option<i64>,
    /// True if it was ended by its timeout.
    pub timed_out: bool,
    /// Time of start.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// Time of exit.
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
}

/// Commands of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandList {
    /// The commands, newest first.
    pub items: Vec<Command>,
}

/// Length of a list of commands.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListCommandsQuery {
    /// Largest number of commands, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Signal to a command.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KillCommand {
    /// Number of the signal; 15 (SIGTERM) by default.
    #[schema(minimum = 1, maximum = 64)]
    pub signal: Option<i32>,
}

/// Input for a command's stdin: text or base64, not both.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandInput {
    /// Input as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Input in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Close stdin after this.
    #[serde(default)]
    pub close: bool,
}

/// Start of a stream of output.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OutputQuery {
    /// Offset of the first byte, 0 by default.
    pub from: Option<u64>,
}

/// A process of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// PID inside the sandbox.
    pub pid: u32,
    /// PID of its parent inside the sandbox.
    pub parent: u32,
    /// Id of the command or terminal that started it, directly or not.
    pub command_id: String,
    /// True if that command has exited and left the process behind.
    pub left: bool,
    /// Its arguments, separated by spaces; long ones are cut off.
    pub arguments: String,
}

/// Processes of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    /// The processes, by PID.
    pub items: Vec<Process>,
}
