//! `/api/v1/sandboxes/{id}/process`: commands in a sandbox.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::Signal;
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::access::Right;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes::{self, ErrorCode};
use workspace_api::events::{CommandEvent, ServerSentEvent};
use workspace_api::processes::{
    BackgroundCommand, Command, CommandInput, CommandList, CommandRecord, CommandResult, KillCommand,
    ListCommandsQuery, OutputQuery, OutputRange, Overflow, RunCommand,
};
use workspace_catalog::IdempotencyClaim;
use workspace_sandbox::{
    AfterInput, CommandHandle, CommandLine, CommandStart, OutputPiece, RunRequest, Stream, TRACE_PENDING,
    TraceOutcome,
};

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path, Query};
use crate::kill_on_drop;
use crate::owner_memory::{JsonSize, MemoryReservation};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::sandboxes::idempotency_key;
use crate::stream;
use crate::stream_access::StreamAccess;
use crate::time::format_millis;

/// Default and maximum of `maxOutputSize` in bytes.
const OUTPUT_DEFAULT: u64 = 1 << 20;
const OUTPUT_MAX: u64 = 64 << 20;
/// Largest timeout in milliseconds that the guest protocol can carry.
const TIMEOUT_MAX: u64 = i32::MAX as u64;
const SIGTERM: i32 = Signal::TERM.as_raw();

#[derive(OpenApi)]
#[openapi(paths(run, list, fetch, output, kill, input), components(schemas(CommandResult, CommandEvent)))]
struct Document;

const RULES: &[Rule] = &[
    Rule::right("GET", "/api/v1/sandboxes/{id}/process", Right::Process),
    Rule::right("POST", "/api/v1/sandboxes/{id}/process/run", Right::Process),
    Rule::right("GET", "/api/v1/sandboxes/{id}/process/{command}", Right::Process),
    Rule::right("GET", "/api/v1/sandboxes/{id}/process/{command}/output", Right::Process),
    Rule::right("POST", "/api/v1/sandboxes/{id}/process/{command}/kill", Right::Process),
    Rule::right("POST", "/api/v1/sandboxes/{id}/process/{command}/stdin", Right::Process),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/sandboxes/{id}/process", get(list))
        .route("/api/v1/sandboxes/{id}/process/run", post(run))
        .route("/api/v1/sandboxes/{id}/process/{command}", get(fetch))
        .route("/api/v1/sandboxes/{id}/process/{command}/output", get(output))
        .route("/api/v1/sandboxes/{id}/process/{command}/kill", post(kill))
        .route("/api/v1/sandboxes/{id}/process/{command}/stdin", post(input));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Run a command.
///
/// The response is the result of the command, a stream of events (`stream`), or only its id (`background`). A command
/// ends when its shell or program exits. A program of `argv` that does not exist or cannot be executed is `COMMAND_FAILED`
/// with exit code 127. Processes that a command leaves in the background keep running until the sandbox is deleted;
/// `GET …/processes` lists them. A repeated request with the same `Idempotency-Key` does not run the command again, but
/// returns the command of the first request.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/process/run", tag = "process", operation_id = "run_command",
    params(("id" = String, Path, description = "Id of the sandbox"),
        ("Idempotency-Key" = Option<String>, Header, description = "Unique text of your choice, 1 to 255 visible ASCII characters. A retry with the same key and body does not repeat the operation")),
    request_body = RunCommand, responses(
    (status = 200, description = "Result of the command; with `stream`, its events", content(
        (CommandResult = "application/json"), (ServerSentEvent = "text/event-stream"))),
    (status = 202, description = "Id of the command, with `background`", body = BackgroundCommand),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn run(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(body): Json<RunCommand>,
) -> Result<Response, ApiError> {
    let claim = idempotency_key(&headers)?.map(|key| idempotency_claim(key, &caller, &body)).transpose()?;
    let max_output = body.max_output_size.unwrap_or(OUTPUT_DEFAULT);
    if max_output > OUTPUT_MAX {
        let message = format!("maxOutputSize must be at most {OUTPUT_MAX} bytes; `stream` has no limit");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "maxOutputSize"));
    }
    if body.timeout.is_some_and(|timeout| timeout > TIMEOUT_MAX) {
        let message = format!("timeout must be at most {TIMEOUT_MAX} ms; 0 means no timeout");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "timeout"));
    }
    let command = command_line(body.command, body.argv)?;
    let mut details = json!({ "command": command.to_text() });
    if let Some(user) = &body.user {
        details["user"] = json!(user);
    }
    let scope = scope(&caller);
    let run = RunRequest {
        command,
        tag: body.tag,
        cwd: body.cwd,
        envs: body.envs,
        timeout: body.timeout.map(Duration::from_millis),
        stdin: body.stdin,
        block_on_unread_output: body.overflow == Overflow::Block,
        user: body.user,
    };
    let (started, mut kill_guard) = if body.kill_on_disconnect {
        let (started, guard) = kill_on_drop::start(&app.sandboxes, &scope, &id, run, claim).await?;
        (started, Some(guard))
    } else {
        (app.sandboxes.run_once(&scope, &id, run, claim).await?, None)
    };
    let command = match started {
        CommandStart::New(command) => {
            let sandbox_id = Some(id.clone());
            app.audit
                .record(Entry { sandbox_id, ..Entry::for_caller("command.run", &caller, &request, details) });
            command
        }
        // The audit log has the first request.
        CommandStart::Existing(command) => command,
    };
    if body.background {
        if let Some(guard) = kill_guard.as_mut() {
            guard.disarm();
        }
        return Ok((StatusCode::ACCEPTED, Json(BackgroundCommand { command_id: command.id })).into_response());
    }
    if body.stream {
        let (output, access) = (command.output(0).await?, StreamAccess::of_caller(&app, &caller));
        return Ok(stream::events(output, command, 0, kill_guard, access));
    }
    let mut memory = app.response_memory.reserve(&caller.owner);
    let result = collect_result(&command, max_output, &mut memory).await;
    if let Some(guard) = kill_guard.as_mut() {
        guard.disarm();
    }
    let mut response = result.map(Json).into_response();
    // The memory counts until the response has been sent.
    response.extensions_mut().insert(Arc::new(memory));
    Ok(response)
}

/// Returns the command line of a request. Fails with `INVALID_REQUEST` unless it has exactly one form.
fn command_line(command: Option<String>, argv: Option<Vec<String>>) -> Result<CommandLine, ApiError> {
    match (command, argv) {
        (Some(command), None) => Ok(CommandLine::Shell(command)),
        (None, Some(argv)) => Ok(CommandLine::Arguments(argv)),
        _ => {
            let message = "exactly one of `command` and `argv` is required";
            Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "command"))
        }
    }
}

/// Creates the claim of an idempotency key: a second request with the key must have the same hash.
fn idempotency_claim(key: String, caller: &Caller, body: &RunCommand) -> Result<IdempotencyClaim, ApiError> {
    let bytes = serde_json::to_vec(body).map_err(ApiError::internal)?;
    let request_hash = blake3::hash(&bytes).to_hex().to_string();
    Ok(IdempotencyClaim { key, owner: caller.owner.clone(), request_hash })
}

/// Waits for a command and collects at most `max_output` bytes of its output, fewer if the responses of the owner use
/// too much memory.
async fn collect_result(
    command: &CommandHandle,
    max_output: u64,
    memory: &mut MemoryReservation,
) -> Result<CommandResult, ApiError> {
    let (mut out, mut err, mut truncated, mut remaining) = (Vec::new(), Vec::new(), false, max_output);
    let (mut out_size, mut err_size) = (JsonSize::default(), JsonSize::default());
    let mut output = command.output(0).await?;
    while let Some(pieces) = output.next().await? {
        for piece in pieces {
            match piece {
                OutputPiece::Data { stream, data, .. } => {
                    let (to, size) = match stream {
                        Stream::Stderr => (&mut err, &mut err_size),
                        _ => (&mut out, &mut out_size),
                    };
                    let mut taken = whole_characters(&data, usize::try_from(remaining).unwrap_or(usize::MAX));
                    if !memory.grow_by_json_size(size, &data[..taken]) {
                        taken = 0;
                    }
                    to.extend_from_slice(&data[..taken]);
                    // After a cut, no later output is taken.
                    remaining = if taken < data.len() { 0 } else { remaining - taken as u64 };
                    if taken < data.len() {
                        truncated = true;
                        output.skip_to_exit();
                    }
                }
                OutputPiece::Gap { .. } => truncated = true,
                OutputPiece::Exit(end) => {
                    let mut result = command_result(&command.id, end.exit_code, out, err, truncated);
                    (result.snapshot, result.trace_error) = trace_to_api(&end.trace);
                    return match end.failure_reason {
                        Some(reason) => Err(failed(error_codes::COMMAND_FAILED, reason, result)),
                        None if end.timed_out => {
                            let message = "the command exceeded its timeout and was killed".to_owned();
                            Err(failed(error_codes::PROCESS_TIMEOUT, message, result))
                        }
                        None => Ok(result),
                    };
                }
            }
        }
    }
    Err(ApiError::new(error_codes::SHUTTING_DOWN, "the server is stopping; the command keeps running")
        .detail("commandId", command.id.clone()))
}

/// Returns the length of the longest prefix of at most `max` bytes that does not cut a UTF-8 character.
pub(crate) fn whole_characters(data: &[u8], max: usize) -> usize {
    if data.len() <= max {
        return data.len();
    }
    match std::str::from_utf8(&data[..max]) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => max,
    }
}

/// Creates an error whose details are the result of the command.
fn failed(code: ErrorCode, message: String, result: CommandResult) -> ApiError {
    let error = ApiError::new(code, message)
        .detail("commandId", result.command_id)
        .detail("exitCode", result.exit_code)
        .detail("stdout", result.stdout)
        .detail("stderr", result.stderr)
        .detail("truncated", result.truncated)
        .detail("snapshot", result.snapshot);
    let optional = [
        ("stdoutBase64", result.stdout_base64),
        ("stderrBase64", result.stderr_base64),
        ("traceError", result.trace_error),
    ];
    let present = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    present.fold(error, |error, (name, value)| error.detail(name, value))
}

fn command_result(id: &str, exit_code: i32, out: Vec<u8>, err: Vec<u8>, truncated: bool) -> CommandResult {
    let (stdout, stdout_base64) = text(out);
    let (stderr, stderr_base64) = text(err);
    let command_id = id.to_owned();
    CommandResult {
        command_id,
        exit_code,
        stdout,
        stderr,
        stdout_base64,
        stderr_base64,
        truncated,
        snapshot: None,
        trace_error: None,
    }
}

/// Returns the id of the snapshot that was made after a command, or the reason why there is none. Both are `None` if
/// the sandbox is not traced, or the command changed no file.
pub(crate) fn trace_to_api(trace: &TraceOutcome) -> (Option<String>, Option<String>) {
    match trace {
        TraceOutcome::None => (None, None),
        TraceOutcome::Snapshot(id) => (Some(id.clone()), None),
        TraceOutcome::Pending => (None, Some(TRACE_PENDING.to_owned())),
        TraceOutcome::Failed(reason) => (None, Some(reason.clone())),
    }
}

/// Returns output as text, and in base64 if it is not UTF-8.
fn text(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.into_bytes();
            (String::from_utf8_lossy(&bytes).into_owned(), Some(BASE64_STANDARD.encode(&bytes)))
        }
    }
}

/// List the commands of a sandbox, the newest first.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/process", tag = "process", operation_id = "list_commands",
    params(("id" = String, Path, description = "Id of the sandbox"), ListCommandsQuery), responses(
    (status = 200, description = "Commands", body = CommandList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<ListCommandsQuery>,
) -> Result<Json<CommandList>, ApiError> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=1_000).contains(&limit) {
        let message = "limit must be between 1 and 1000";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "limit"));
    }
    let commands = app.sandboxes.commands(&scope(&caller), &id, query.tag.as_deref(), limit).await?;
    let items = commands.into_iter().map(command_to_api).collect::<Result<_, _>>()?;
    Ok(Json(CommandList { items }))
}

fn command_to_api(command: workspace_catalog::Command) -> Result<Command, ApiError> {
    Ok(Command {
        command_id: command.id,
        command: command.command,
        command_truncated: command.command_truncated,
        argv: command.argv,
        tag: command.tag,
        pid: command.pid,
        cwd: command.cwd,
        state: command.state.as_str().to_owned(),
        exit_code: command.exit_code,
        timed_out: command.timed_out,
        started_at: format_millis(command.started_at)?,
        ended_at: command.ended_at.map(format_millis).transpose()?,
        snapshot: command.snapshot,
        trace_error: command.trace_error,
    })
}

/// Get a command, running or ended.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/process/{command}", tag = "process", operation_id = "get_command",
    params(("id" = String, Path, description = "Id of the sandbox"), ("command" = String, Path, description = "Id of the command")), responses(
    (status = 200, description = "Command", body = CommandRecord),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path((id, command)): Path<(String, String)>,
) -> Result<Json<CommandRecord>, ApiError> {
    let (command, kept) = app.sandboxes.command_record(&scope(&caller), &id, &command).await?;
    let retained_output = kept.map(|range| OutputRange { from: range.start, to: range.end });
    Ok(Json(CommandRecord { command: command_to_api(command)?, retained_output }))
}

/// Stream the output of a command as events.
///
/// The stream starts with the retained output, and ends after the command. To resume a lost stream, send the id of
/// the last event as `Last-Event-ID`. When the token expires or its key is revoked, the last event is `ended`.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/process/{command}/output", tag = "process", operation_id = "command_output",
    params(("id" = String, Path, description = "Id of the sandbox"), ("command" = String, Path, description = "Id of the command"), OutputQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received event, to resume a stream")),
    responses(
        (status = 200, description = "Stream of events", body = ServerSentEvent, content_type = "text/event-stream"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
async fn output(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Path((id, command)): Path<(String, String)>,
    Query(query): Query<OutputQuery>,
) -> Result<Response, ApiError> {
    let from = last_event_id(&headers)?.or(query.from).unwrap_or(0);
    let handle = app.sandboxes.command(&scope(&caller), &id, &command).await?;
    let output = handle.output(from).await?;
    Ok(stream::events(output, handle, from, None, StreamAccess::of_caller(&app, &caller)))
}

/// Parses the header `Last-Event-ID`; `None` if it is absent.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| {
        let message = "Last-Event-ID must be the id of an event of this stream, a number";
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("header", "Last-Event-ID")
    })
}

/// Send a signal to a command and all its processes.
///
/// The signal also reaches processes that the command left behind when it exited. Without a body, the signal is 15
/// (SIGTERM). Fails with `COMMAND_NOT_RUNNING` if the command has exited and left no process behind.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/process/{command}/kill", tag = "process", operation_id = "kill_command",
    params(("id" = String, Path, description = "Id of the sandbox"), ("command" = String, Path, description = "Id of the command")), request_body = Option<KillCommand>, responses(
    (status = 204, description = "The signal was sent"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn kill(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, command)): Path<(String, String)>,
    Optional(body): Optional<KillCommand>,
) -> Result<StatusCode, ApiError> {
    let signal = body.signal.unwrap_or(SIGTERM);
    app.sandboxes.kill(&scope(&caller), &id, &command, signal).await?;
    let details = json!({ "command_id": command, "signal": signal });
    app.audit.record(Entry {
        sandbox_id: Some(id),
        ..Entry::for_caller("command.signalled", &caller, &request, details)
    });
    Ok(StatusCode::NO_CONTENT)
}

/// Write to the stdin of a command.
///
/// The command must have been started with `stdin: true`.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/process/{command}/stdin", tag = "process", operation_id = "write_stdin",
    params(("id" = String, Path, description = "Id of the sandbox"), ("command" = String, Path, description = "Id of the command")), request_body = CommandInput, responses(
    (status = 204, description = "The input was accepted"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn input(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, command)): Path<(String, String)>,
    Json(body): Json<CommandInput>,
) -> Result<StatusCode, ApiError> {
    let data = match (body.data, body.data_base64) {
        (Some(_), Some(_)) => {
            let message = "either `data` or `dataBase64`, not both";
            return Err(ApiError::new(error_codes::INVALID_REQUEST, message));
        }
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => BASE64_STANDARD.decode(text).map_err(|_| {
            ApiError::new(error_codes::INVALID_REQUEST, "dataBase64 is not base64")
                .detail("field", "dataBase64")
        })?,
        (None, None) => Vec::new(),
    };
    // The input may be secret, so only its length is logged.
    let details = json!({ "command_id": command, "bytes": data.len(), "close": body.close });
    let after = if body.close { AfterInput::Close } else { AfterInput::KeepOpen };
    app.sandboxes.input(&scope(&caller), &id, &command, data, after).await?;
    app.audit.record(Entry {
        sandbox_id: Some(id),
        ..Entry::for_caller("command.input", &caller, &request, details)
    });
    Ok(StatusCode::NO_CONTENT)
}
