//! `/api/v1/sandboxes/{id}/process` and `processes`: commands in a sandbox, and the processes that they started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Request to run a command: either `command` with `/bin/sh -c`, or `argv` without a shell.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"command": "echo hello"}))]
pub struct RunCommand {
    /// Command line for the shell. Exactly one of `command` and `argv` is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "echo hello", min_length = 1)]
    pub command: Option<String>,
    /// Program and its arguments, which are executed without a shell, so that they need no quotes. A program name
    /// without a slash is looked up in the command's `PATH`. At most 16384 arguments of 131071 bytes each, 1 MiB in
    /// total.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["printf", "%s\n", "two words"]), min_items = 1, max_items = 16384)]
    pub argv: Option<Vec<String>>,
    /// Label for filtering the list of commands. It must not contain control characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "tests", min_length = 1, max_length = 128)]
    pub tag: Option<String>,
    /// Working directory. Default: `/workspace`.
    pub cwd: Option<String>,
    /// User that runs the command: a name in `/etc/passwd` of the sandbox, or a user id. Users other than `sandbox`
    /// need a sandbox with `root: kept` and a server that runs as root with the runtime `embedded`; otherwise the
    /// request fails with the error code `USER_UNAVAILABLE`. Default: `sandbox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "root", min_length = 1, max_length = 256)]
    pub user: Option<String>,
    /// Environment variables, in addition to those of the sandbox.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Timeout in milliseconds, not seconds, after which the command and its processes are killed. 0 for none. Default:
    /// the server's setting `DEFAULT_COMMAND_TIMEOUT` (60000).
    #[schema(maximum = 2147483647)]
    pub timeout: Option<u64>,
    /// Responds with a stream of events (`text/event-stream`) instead of a result. Default: false.
    #[serde(default)]
    pub stream: bool,
    /// Responds as soon as the command has started, only with its id. Default: false.
    #[serde(default)]
    pub background: bool,
    /// Maximum size of the output in the result in bytes. Default: 1 MiB. The output is cut further while responses
    /// that the server still has to send to the same owner exceed 128 MiB in total. `truncated` is true if output was
    /// cut off.
    #[schema(maximum = 67108864)]
    pub max_output_size: Option<u64>,
    /// Keeps stdin open for requests to `…/process/{command}/stdin`. Otherwise stdin is empty. Default: false.
    #[serde(default)]
    pub stdin: bool,
    /// Policy for output that exceeds the retained output of the command (server setting `OUTPUT_KEEP`, by default 16
    /// MiB) before it is read. With `block`, the command waits earlier if less is left of the limit for all commands of
    /// the sandbox (`SANDBOX_OUTPUT_KEEP`) or of its disk space. Default: `drop`.
    #[serde(default)]
    pub overflow: Overflow,
    /// Kills the command if the client disconnects before the command exits. Default: false.
    #[serde(default)]
    pub kill_on_disconnect: bool,
}

/// Policy for output that exceeds the retained output of a command before it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// Drops the oldest output; readers get a `gap` event.
    #[default]
    Drop,
    /// Blocks the command until output has been read.
    Block,
}

/// Result of a command that has exited.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandResult {
    /// Id of the command.
    pub command_id: String,
    /// Exit code; 128 + n if the command was killed by signal n.
    pub exit_code: i32,
    /// Stdout as text. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub stdout: String,
    /// Stderr as text. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub stderr: String,
    /// Stdout in base64. Only present if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// Stderr in base64. Only present if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// True if output was cut off. `GET …/process/{command}/output` returns all retained output.
    pub truncated: bool,
    /// Id of the automatic snapshot after the command. Absent if automatic snapshots are off (see `trace` of the
    /// sandbox), or the command changed no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Reason why there is no automatic snapshot although automatic snapshots are on and files may have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_error: Option<String>,
}

/// Command that runs in the background.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundCommand {
    /// Id of the command, for `…/process/{command}/output`, `stdin` and `kill`.
    pub command_id: String,
}

/// Command of a sandbox, running or ended.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Id of the command.
    pub command_id: String,
    /// First 4096 bytes of the command line. For a command with `argv`, the arguments as they are quoted for a shell.
    pub command: String,
    /// True if the command line is longer than `command`.
    pub command_truncated: bool,
    /// Program and its arguments; null for a command that a shell runs, and if `commandTruncated` is true.
    pub argv: Option<Vec<String>>,
    /// Tag of the request; null if it had none.
    pub tag: Option<String>,
    /// PID of the program inside the sandbox; null if it is not known yet, or the program was not started.
    pub pid: Option<u32>,
    /// Working directory; null if the request did not set one.
    pub cwd: Option<String>,
    /// State: `running`, `exited` or `failed` (could not be started, or was lost with its sandbox).
    pub state: String,
    /// Exit code; null while the command runs, if the guest agent did not accept the command, and if the command was
    /// lost. A `failed` command has 126 if its working directory could not be entered, and 127 if its program could not
    /// be executed.
    pub exit_code: Option<i64>,
    /// True if the command was killed by its timeout.
    pub timed_out: bool,
    /// Start time.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// End time; null while the command runs.
    #[schema(format = DateTime)]
    pub ended_at: Option<String>,
    /// Id of the automatic snapshot after the command, which may be deleted by now; null if automatic snapshots are off
    /// (see `trace` of the sandbox), or the command changed no file.
    pub snapshot: Option<String>,
    /// Reason why there is no automatic snapshot although automatic snapshots are on and files may have changed; null
    /// if there is no such reason.
    pub trace_error: Option<String>,
}

/// Command of a sandbox, with the range of its output that is retained.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandRecord {
    /// Command.
    #[serde(flatten)]
    pub command: Command,
    /// Range of the output that is retained, not the output itself; null if none is retained.
    #[serde(rename = "output")]
    pub retained_output: Option<OutputRange>,
}

/// Offsets between which the output of a command is retained. There may be gaps between them. Offsets count the bytes
/// of stdout and stderr together.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = KeptOutput, example = json!({"from": 0, "to": 6}))]
pub struct OutputRange {
    /// Offset of the first retained byte.
    pub from: u64,
    /// Offset after the last byte: the number of bytes that the command has printed.
    pub to: u64,
}

/// List of commands of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandList {
    /// Commands, newest first.
    pub items: Vec<Command>,
}

/// Query parameters of the list of commands.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListCommandsQuery {
    /// Maximum number of commands. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Tag of the commands. Default: commands with any tag, or none.
    #[param(min_length = 1, max_length = 128)]
    pub tag: Option<String>,
}

/// Request to send a signal to all processes of a command, also to those that it left behind.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"signal": 15}))]
pub struct KillCommand {
    /// Signal number. Default: 15 (SIGTERM).
    #[schema(minimum = 1, maximum = 64)]
    pub signal: Option<i32>,
}

/// Input for the stdin of a command. `data` and `dataBase64` are mutually exclusive.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"data": "hello\n", "close": true}))]
pub struct CommandInput {
    /// Input as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Input in base64, for bytes that are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Closes stdin after this input. Default: false.
    #[serde(default)]
    pub close: bool,
}

/// Query parameters of a command's output.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OutputQuery {
    /// Offset of the first byte. Default: 0. The header `Last-Event-ID` overrides it.
    pub from: Option<u64>,
}

/// Process of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// PID inside the sandbox.
    pub pid: u32,
    /// PID of the parent process inside the sandbox.
    pub parent: u32,
    /// Id of the command or terminal that started the process, directly or indirectly.
    pub command_id: String,
    /// True for a leftover process: it still runs although that command has exited.
    pub left: bool,
    /// Command line of the process: its arguments, including the program, separated by spaces. Long command lines are
    /// truncated.
    pub arguments: String,
}

/// List of processes of a sandbox.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    /// Processes, ordered by PID.
    pub items: Vec<Process>,
}
