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
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes::{self, ErrorCode};
use workspace_api::events::{CommandEvent, ServerSentEvent};
use workspace_api::processes::{
    Command, CommandInput, CommandList, CommandResult, KillCommand, ListCommandsQuery, OutputQuery, Overflow,
    RunCommand, StartedCommand,
};
use workspace_catalog::NewClaim;
use workspace_sandbox::Run as Begun;
use workspace_sandbox::{CommandHandle, Piece, RunRequest, Scope, Service, Stream};

use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path, Query};
use crate::owner_memory::Held;
use crate::route_group::RouteGroup;
use crate::request_id::RequestId;
use crate::sandboxes::{idempotency_key, scope};
use crate::stream;
use crate::time::time;

const OUTPUT_DEFAULT: u64 = 1 << 20;
const OUTPUT_MAX: u64 = 64 << 20;
/// Largest timeout in milliseconds that the guest protocol can carry.
const TIMEOUT_MAX: u64 = i32::MAX as u64;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

#[derive(OpenApi)]
#[openapi(paths(run, list, output, kill, input), components(schemas(CommandResult, CommandEvent)))]
struct Document;

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/sandboxes/{id}/process", get(list))
        .route("/api/v1/sandboxes/{id}/process/run", post(run))
        .route("/api/v1/sandboxes/{id}/process/{command}/output", get(output))
        .route("/api/v1/sandboxes/{id}/process/{command}/kill", post(kill))
        .route("/api/v1/sandboxes/{id}/process/{command}/stdin", post(input));
    RouteGroup::authenticated(routes, Document::openapi())
}

/// Run a command.
///
/// Responds with its result, or with a stream of events. The command has ended when its shell has; processes
/// that it leaves in the background keep running until the sandbox ends, and are listed by `processes`. The
/// same request with the same `Idempotency-Key` runs nothing again: it gets the command of the first
/// request, while it runs and after.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/process/run", tag = "process", operation_id = "run_command",
    params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Key that a retried request repeats")),
    request_body = RunCommand, responses(
    (status = 200, description = "Its result; with `stream`, events", content(
        (CommandResult = "application/json"), (ServerSentEvent = "text/event-stream"))),
    (status = 202, description = "With `background`, its id", body = StartedCommand),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn run(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(order): Json<RunCommand>,
) -> Result<Response, ApiError> {
    let claim = idempotency_key(&headers)?.map(|key| claim(key, &caller, &order)).transpose()?;
    let most = order.max_output_size.unwrap_or(OUTPUT_DEFAULT);
    if most > OUTPUT_MAX {
        let message = format!("maxOutputSize: {OUTPUT_MAX} bytes are allowed; `stream` has no limit");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "maxOutputSize"));
    }
    if order.timeout.is_some_and(|timeout| timeout > TIMEOUT_MAX) {
        let message = format!("timeout: {TIMEOUT_MAX} ms are allowed; 0 is for as long as the sandbox lives");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "timeout"));
    }
    let (scope, details) = (scope(&caller), json!({ "command": order.command }));
    let wanted = RunRequest {
        command: order.command,
        cwd: order.cwd,
        envs: order.envs,
        timeout: order.timeout.map(Duration::from_millis),
        stdin: order.stdin,
        block: order.overflow == Overflow::Block,
    };
    let command = match app.sandboxes.run_once(&scope, &id, wanted, claim).await? {
        Begun::Started(command) => {
            let sandbox_id = Some(id.clone());
            app.audit.record(Entry { sandbox_id, ..Entry::by("command.run", &caller, &request, details) });
            command
        }
        // What was begun once is told of once.
        Begun::Repeated(command) => command,
    };
    if order.background {
        return Ok((StatusCode::ACCEPTED, Json(StartedCommand { command_id: command.id })).into_response());
    }
    let mut killer = Killer::new(&app.sandboxes, scope, id, &command, order.kill_on_disconnect);
    if order.stream {
        let output = command.output(0).await?;
        let gone = async move { drop(killer) };
        return Ok(stream::events(output, command.id.clone(), 0, gone));
    }
    let mut memory = app.answer_memory.begin(&caller.owner);
    let result = result(&command, most, &mut memory).await;
    killer.rest();
    let mut response = result.map(Json).into_response();
    // Until it was sent.
    response.extensions_mut().insert(Arc::new(memory));
    Ok(response)
}

/// Creates the claim of an idempotency key for a request.
fn claim(key: String, caller: &Caller, order: &RunCommand) -> Result<NewClaim, ApiError> {
    let bytes = serde_json::to_vec(order).map_err(ApiError::internal)?;
    let request_hash = blake3::hash(&bytes).to_hex().to_string();
    Ok(NewClaim { key, owner: caller.owner.clone(), request_hash })
}

/// Kills a command when it is dropped, which happens when the client disconnects.
struct Killer(Option<(Service, Scope, String, String)>);

impl Killer {
    fn new(service: &Service, scope: Scope, sandbox: String, command: &CommandHandle, armed: bool) -> Self {
        Self(armed.then(|| (service.clone(), scope, sandbox, command.id.clone())))
    }

    fn rest(&mut self) {
        self.0 = None;
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        if let Some((service, scope, sandbox, command)) = self.0.take() {
            tokio::spawn(async move {
                // It may have ended by itself.
                drop(service.kill(&scope, &sandbox, &command, SIGKILL).await);
            });
        }
    }
}

/// Waits for a command and collects up to `most` bytes of its output, fewer if the owner's responses use too
/// much memory.
async fn result(command: &CommandHandle, most: u64, memory: &mut Held) -> Result<CommandResult, ApiError> {
    let (mut out, mut err, mut truncated, mut left) = (Vec::new(), Vec::new(), false, most);
    let mut output = command.output(0).await?;
    while let Some(pieces) = output.next().await? {
        for piece in pieces {
            match piece {
                Piece::Data { stream, data, .. } => {
                    let mut taken = whole_characters(&data, usize::try_from(left).unwrap_or(usize::MAX));
                    if !memory.grow(&data[..taken]) {
                        taken = 0;
                    }
                    let to = if stream == Stream::Stderr { &mut err } else { &mut out };
                    to.extend_from_slice(&data[..taken]);
                    // Nothing follows what was cut off.
                    left = if taken < data.len() { 0 } else { left - taken as u64 };
                    if taken < data.len() {
                        truncated = true;
                        output.skip_to_end();
                    }
                }
                Piece::Gap { .. } => truncated = true,
                Piece::End(end) => {
                    let result = command_result(&command.id, end.exit_code, out, err, truncated);
                    return match end.failed {
                        Some(why) => Err(failed(error_codes::COMMAND_FAILED, why, result)),
                        None if end.timed_out => {
                            let message = "the command ran longer than allowed and was ended".to_owned();
                            Err(failed(error_codes::PROCESS_TIMEOUT, message, result))
                        }
                        None => Ok(result),
                    };
                }
            }
        }
    }
    Err(ApiError::new(error_codes::SHUTTING_DOWN, "the server is stopping; the command goes on")
        .detail("commandId", command.id.clone()))
}

/// Returns how many of the first `most` bytes to take without cutting a UTF-8 character.
pub(crate) fn whole_characters(data: &[u8], most: usize) -> usize {
    if data.len() <= most {
        return data.len();
    }
    match std::str::from_utf8(&data[..most]) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => most,
    }
}

/// Creates an error that carries the command's output.
fn failed(code: ErrorCode, message: String, result: CommandResult) -> ApiError {
    ApiError::new(code, message)
        .detail("commandId", result.command_id)
        .detail("exitCode", result.exit_code)
        .detail("stdout", result.stdout)
        .detail("stderr", result.stderr)
        .detail("truncated", result.truncated)
}

fn command_result(id: &str, exit_code: i32, out: Vec<u8>, err: Vec<u8>, truncated: bool) -> CommandResult {
    let (stdout, stdout_base64) = text(out);
    let (stderr, stderr_base64) = text(err);
    let command_id = id.to_owned();
    CommandResult { command_id, exit_code, stdout, stderr, stdout_base64, stderr_base64, truncated }
}

fn text(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.into_bytes();
            (String::from_utf8_lossy(&bytes).into_owned(), Some(BASE64_STANDARD.encode(&bytes)))
        }
    }
}

/// List commands, newest first.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/process", tag = "process", operation_id = "list_commands",
    params(("id" = String, Path), ListCommandsQuery), responses(
    (status = 200, description = "The commands", body = CommandList),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<ListCommandsQuery>,
) -> Result<Json<CommandList>, ApiError> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=1_000).contains(&limit) {
        let message = "limit: 1 to 1000 are allowed";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "limit"));
    }
    let commands = app.sandboxes.commands(&scope(&caller), &id, limit).await?;
    let items = commands.into_iter().map(command_to_api).collect::<Result<_, _>>()?;
    Ok(Json(CommandList { items }))
}

fn command_to_api(command: workspace_catalog::Command) -> Result<Command, ApiError> {
    Ok(Command {
        command_id: command.id,
        command: command.command,
        command_truncated: command.command_truncated,
        cwd: command.cwd,
        state: command.state.as_str().to_owned(),
        exit_code: command.exit_code,
        timed_out: command.timed_out,
        started_at: time(command.started_at)?,
        ended_at: command.ended_at.map(time).transpose()?,
    })
}

/// Stream the output of a command as events.
///
/// `Last-Event-ID` resumes a lost stream.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/process/{command}/output", tag = "process", operation_id = "command_output",
    params(("id" = String, Path), ("command" = String, Path), OutputQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last event that was received")),
    responses(
        (status = 200, description = "Events", body = ServerSentEvent, content_type = "text/event-stream"),
        (status = "default", description = "An error", body = ErrorBody),
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
    // The handle keeps the command's progress updates coming while a client reads.
    Ok(stream::events(output, command, from, async move { drop(handle) }))
}

/// Parses the header `Last-Event-ID`; `None` if it is absent.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| {
        let message = "Last-Event-ID is the id of an event of this stream: a number";
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("header", "Last-Event-ID")
    })
}

/// Send a signal to a command and all processes that it started, also to those that it left behind.
///
/// Without a body, 15 (SIGTERM). A command that exited and left nothing behind gets `COMMAND_NOT_RUNNING`.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/process/{command}/kill", tag = "process", operation_id = "kill_command",
    params(("id" = String, Path), ("command" = String, Path)), request_body = Option<KillCommand>, responses(
    (status = 204, description = "Sent"),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn kill(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, command)): Path<(String, String)>,
    Optional(order): Optional<KillCommand>,
) -> Result<StatusCode, ApiError> {
    let signal = order.signal.unwrap_or(SIGTERM);
    app.sandboxes.kill(&scope(&caller), &id, &command, signal).await?;
    let details = json!({ "command_id": command, "signal": signal });
    app.audit
        .record(Entry { sandbox_id: Some(id), ..Entry::by("command.signalled", &caller, &request, details) });
    Ok(StatusCode::NO_CONTENT)
}

/// Write to the stdin of a command.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/process/{command}/stdin", tag = "process", operation_id = "write_stdin",
    params(("id" = String, Path), ("command" = String, Path)), request_body = CommandInput, responses(
    (status = 204, description = "Accepted"),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn input(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path((id, command)): Path<(String, String)>,
    Json(order): Json<CommandInput>,
) -> Result<StatusCode, ApiError> {
    let data = match (order.data, order.data_base64) {
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
    // What was written may be secret; how much is not.
    let details = json!({ "command_id": command, "bytes": data.len(), "close": order.close });
    app.sandboxes.input(&scope(&caller), &id, &command, data, order.close).await?;
    app.audit
        .record(Entry { sandbox_id: Some(id), ..Entry::by("command.input", &caller, &request, details) });
    Ok(StatusCode::NO_CONTENT)
}
