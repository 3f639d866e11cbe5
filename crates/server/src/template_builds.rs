//! `/api/v1/templates/{name}/build`: builds of templates from recipes, with their progress as server-sent events.
//!
//! A build belongs to its connection: it is cancelled when the client leaves, the key is revoked or the server stops.
//! Finished steps are kept, so that the next build continues.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Response;
use axum::routing::post;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http_body::Body as _;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::template_builds::{BuildEvent, BuildEventKind, BuildServerSentEvent, BuildTemplateQuery};
use workspace_sandbox::template::{TemplateError, check_template_name};
use workspace_sandbox::{BuildRequest, BuiltTemplate, CacheMode, Creator, RECIPE_FILE, SandboxError, Stream};

use crate::access::Rule;
use crate::app::App;
use crate::audit::{Entry, Level};
use crate::caller::Caller;
use crate::commands::whole_characters;
use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::server_sent_events::{KEEPALIVE, KEEPALIVE_INTERVAL, response};
use crate::stream_access::StreamAccess;
use crate::templates::{imported_to_api, receive, too_large};

/// Setting that limits an archive.
const LIMIT_SETTING: &str = "MAX_BUILD_CONTEXT";
/// Maximum number of reports that wait to be sent.
const REPORTS_MAX: usize = 16;
/// Maximum number of chunks in the queue to the client.
const QUEUE_MAX: usize = 1;
/// Maximum number of bytes of output in one event. JSON needs up to six bytes for one.
const EVENT_SIZE: usize = 16 << 10;
/// Timeout for sending the last event.
const END_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(OpenApi)]
#[openapi(paths(build), components(schemas(BuildEvent)))]
struct Document;

const RULES: &[Rule] = &[Rule::only_keys("POST", "/api/v1/templates/{name}/build")];

pub(crate) fn route_group() -> RouteGroup {
    // `MAX_BUILD_CONTEXT` limits the archive instead; it is written to disk as it arrives.
    let routes =
        Router::new().route("/api/v1/templates/{name}/build", post(build).layer(DefaultBodyLimit::disable()));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Build a template.
///
/// The body is a tar archive with a recipe (`template.toml`) and the files that its steps copy, plain or compressed with
/// gzip or zstd. The response is a stream of events; the last one is `done` or `error`. The build is cancelled when the
/// connection closes. Steps whose inputs did not change since an earlier build do not run again. The result is a new
/// version of the template, `NAME@VERSION`: the next number, or the version in the path. Admins only.
#[utoipa::path(post, path = "/api/v1/templates/{name}/build", tag = "templates", operation_id = "build_template",
    params(("name" = String, Path, description = "Name of the template, or `NAME@VERSION`", example = "python"), BuildTemplateQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, description = "Stream of events", body = BuildServerSentEvent, content_type = "text/event-stream"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn build(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(name): Path<String>,
    Query(query): Query<BuildTemplateQuery>,
    body: Body,
) -> Result<Response, ApiError> {
    caller.require_admin()?;
    check_template_name(&name).map_err(SandboxError::from)?;
    let max_bytes = app.settings.max_build_context.0;
    if body.size_hint().exact().is_some_and(|length| length > max_bytes) {
        return Err(too_large(max_bytes, LIMIT_SETTING));
    }
    let permit = app.work_limits.template(&caller.owner).await?;
    let archive = receive(&app, body, (max_bytes, LIMIT_SETTING)).await?;
    let recipe = query.recipe.as_deref().unwrap_or(RECIPE_FILE);
    let context = app.sandboxes.receive_build(archive, recipe).await.map_err(receive_error)?;
    drop(permit);
    app.audit.record(Entry::for_caller("template.build", &caller, &request, json!({ "template": name })));
    let build = BuildRequest {
        name,
        context,
        cache: if query.no_cache { CacheMode::Ignore } else { CacheMode::Use },
        creator: Creator {
            owner: caller.owner.clone(),
            unlimited: true,
            max_sandboxes: None,
            idempotency_key: None,
        },
        created_by: Some(caller.name.clone()),
    };
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(BuildStream { app, caller, request, sender }.serve(build));
    Ok(response(receiver))
}

fn receive_error(error: SandboxError) -> ApiError {
    match error {
        SandboxError::Template(TemplateError::TooLarge { limit, .. }) => {
            let message = error.to_string();
            ApiError::new(error_codes::PAYLOAD_TOO_LARGE, message)
                .detail("limit", limit)
                .detail("setting", LIMIT_SETTING)
        }
        other => other.into(),
    }
}

/// Stream of events to the client of a build.
struct BuildStream {
    app: App,
    caller: Caller,
    request: RequestId,
    sender: mpsc::Sender<Bytes>,
}

impl BuildStream {
    /// Builds a template, and reports the progress to the client.
    async fn serve(self, build: BuildRequest) {
        let _running = self.app.shutdown.enter();
        let name = build.name.clone();
        let access = StreamAccess::of_caller(&self.app, &self.caller);
        let built = tokio::select! {
            built = self.build(build) => built,
            reason = access.ended() => Some(Err(ApiError::new(error_codes::UNAUTHORIZED, reason))),
            () = self.app.shutdown.wait_until_begun() => Some(Err(ApiError::new(
                error_codes::SHUTTING_DOWN,
                "the server is stopping; finished steps are kept, so build again later",
            ))),
        };
        self.audit(&name, built.as_ref());
        let Some(built) = built else { return };
        let event = match built.and_then(|built| done(&built)) {
            Ok(event) => event,
            Err(error) => {
                if let Some(cause) = error.cause() {
                    tracing::error!(
                        request_id = self.request.0.as_str(),
                        cause,
                        "failed to build a template"
                    );
                }
                let error = error.body(self.request.0.as_str()).error;
                BuildEvent { error: Some(error), ..BuildEvent::new(BuildEventKind::Error) }
            }
        };
        // An error means that the client is disconnected or does not read.
        drop(timeout(END_TIMEOUT, self.sender.send(encode(&event))).await);
    }

    /// Builds a template. `None` if the client has left, which cancels the build.
    async fn build(&self, build: BuildRequest) -> Option<Result<BuiltTemplate, ApiError>> {
        let (reports, mut reported) = mpsc::channel(REPORTS_MAX);
        let mut build = pin!(self.app.sandboxes.build_template(build, reports));
        let mut keepalive = interval_at(Instant::now() + KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let built = loop {
            tokio::select! {
                built = &mut build => break built,
                Some(report) = reported.recv() => self.report(report).await?,
                _ = keepalive.tick() => self.sender.send(Bytes::from_static(KEEPALIVE)).await.ok()?,
                () = self.sender.closed() => return None,
            }
        };
        while let Some(report) = reported.recv().await {
            self.report(report).await?;
        }
        Some(built.map_err(ApiError::from))
    }

    /// Sends a report. `None` if the client has left.
    async fn report(&self, report: workspace_sandbox::BuildEvent) -> Option<()> {
        for event in events_of(report) {
            self.sender.send(encode(&event)).await.ok()?;
        }
        Some(())
    }

    /// Records the end of a build.
    fn audit(&self, name: &str, built: Option<&Result<BuiltTemplate, ApiError>>) {
        let (level, event, details) = match built {
            Some(Ok(built)) => (
                Level::Info,
                "template.built",
                json!({ "template": built.template.name, "created": built.is_new }),
            ),
            Some(Err(error)) => {
                let details = json!({ "template": name, "error": error.code().name });
                (Level::Error, "template.build_failed", details)
            }
            None => (Level::Info, "template.build_cancelled", json!({ "template": name })),
        };
        self.app
            .audit
            .record(Entry { level, ..Entry::for_caller(event, &self.caller, &self.request, details) });
    }
}

fn done(built: &BuiltTemplate) -> Result<BuildEvent, ApiError> {
    Ok(BuildEvent {
        template: Some(imported_to_api(&built.template)?),
        created: Some(built.is_new),
        steps: Some(built.steps),
        cached: Some(built.cached),
        ..BuildEvent::new(BuildEventKind::Done)
    })
}

/// Converts a report into events, each with at most [`EVENT_SIZE`] bytes of output.
fn events_of(report: workspace_sandbox::BuildEvent) -> Vec<BuildEvent> {
    let (stream, data) = match report {
        workspace_sandbox::BuildEvent::Step { number, total, text } => {
            let (step, steps, text) = (Some(number), Some(total), Some(text));
            return vec![BuildEvent { step, steps, text, ..BuildEvent::new(BuildEventKind::Step) }];
        }
        workspace_sandbox::BuildEvent::Cached { number } => {
            return vec![BuildEvent { step: Some(number), ..BuildEvent::new(BuildEventKind::Cached) }];
        }
        workspace_sandbox::BuildEvent::Output { stream, data } => (stream, data),
    };
    let stream = if stream == Stream::Stderr { "stderr" } else { "stdout" };
    let (mut events, mut rest) = (Vec::new(), data.as_slice());
    while !rest.is_empty() {
        let taken = match whole_characters(rest, EVENT_SIZE) {
            // The data is not UTF-8.
            0 => rest.len().min(EVENT_SIZE),
            taken => taken,
        };
        let (piece, after) = rest.split_at(taken);
        rest = after;
        let text = std::str::from_utf8(piece).ok().map(str::to_owned);
        events.push(BuildEvent {
            stream: Some(stream.to_owned()),
            data_base64: text.is_none().then(|| BASE64_STANDARD.encode(piece)),
            data: text,
            ..BuildEvent::new(BuildEventKind::Output)
        });
    }
    events
}

fn encode(event: &BuildEvent) -> Bytes {
    let mut text = format!("event: {}\ndata: ", event.kind).into_bytes();
    // JSON has no line breaks; writing into memory does not fail.
    let _ = serde_json::to_writer(&mut text, event);
    text.extend_from_slice(b"\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(data: &[u8]) -> Vec<BuildEvent> {
        events_of(workspace_sandbox::BuildEvent::Output { stream: Stream::Stdout, data: data.to_vec() })
    }

    #[test]
    fn output_is_text_or_base64_in_small_events() {
        let events = output("é".repeat(EVENT_SIZE).as_bytes());
        assert_eq!(events.len(), 2);
        let text: String = events.iter().filter_map(|event| event.data.as_deref()).collect();
        assert_eq!(text, "é".repeat(EVENT_SIZE));
        let binary = output(b"\xff\xfe");
        assert_eq!((binary[0].data.as_deref(), binary[0].data_base64.as_deref()), (None, Some("//4=")));
    }

    #[test]
    fn events_are_encoded_as_one_line_of_json() {
        let step = workspace_sandbox::BuildEvent::Step { number: 1, total: 2, text: "run a\nb".to_owned() };
        let expected =
            "event: step\ndata: {\"type\":\"step\",\"step\":1,\"steps\":2,\"text\":\"run a\\nb\"}\n\n";
        assert_eq!(encode(&events_of(step)[0]), expected);
    }
}
