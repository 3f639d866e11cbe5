//! `/api/v1/sandboxes/{id}/pause` and `resume`.

use std::time::Duration;

use axum::extract::State;
use serde_json::json;
use workspace_api::error::ErrorBody;
use workspace_api::pauses::{PauseMode as RequestedMode, PauseSandbox, ResumeSandbox};
use workspace_api::sandboxes::Sandbox;
use workspace_sandbox::{Creator, PauseMode};

use super::conversion::sandbox_to_api;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path};
use crate::request_id::RequestId;

/// Pause a sandbox.
///
/// With `memory`, its processes are frozen, and timeouts of its commands do not advance. With `disk`, its processes end,
/// and `/workspace` stays as a snapshot. A sandbox stays paused for at most `MAX_PAUSED` of the server; then it is
/// deleted. Requests that need a running sandbox fail with `SANDBOX_NOT_RUNNING`. A repeated request does nothing.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/pause", tag = "sandboxes", operation_id = "pause_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), request_body = PauseSandbox, responses(
    (status = 200, description = "Paused sandbox", body = Sandbox),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<PauseSandbox>,
) -> Result<Json<Sandbox>, ApiError> {
    let mode = match body.keep {
        RequestedMode::Memory => PauseMode::Memory,
        RequestedMode::Disk => PauseMode::Disk,
    };
    let info = app.sandboxes.pause(&scope(&caller), &id, mode).await?;
    let (sandbox_id, details) =
        (Some(id), json!({ "keep": body.keep, "snapshot": info.sandbox.pause_snapshot }));
    app.audit.record(Entry { sandbox_id, ..Entry::for_caller("sandbox.paused", &caller, &request, details) });
    Ok(Json(sandbox_to_api(&app.nfs, &caller, info)?))
}

/// Resume a paused sandbox.
///
/// The sandbox is running when the response is sent. If it was paused to disk, it is started again with the files of
/// `/workspace`; it counts as one more sandbox of its owner, and fails with `SANDBOX_LIMIT_EXCEEDED` if there are too
/// many. A repeated request does nothing.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/resume", tag = "sandboxes", operation_id = "resume_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), request_body = Option<ResumeSandbox>, responses(
    (status = 200, description = "Running sandbox", body = Sandbox),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(body): Optional<ResumeSandbox>,
) -> Result<Json<Sandbox>, ApiError> {
    let creator = Creator {
        owner: caller.owner.clone(),
        unlimited: caller.is_admin(),
        max_sandboxes: caller.limits.max_sandboxes,
        idempotency_key: None,
    };
    let lifetime = body.timeout_seconds.map(Duration::from_secs);
    let info = app.sandboxes.resume(&scope(&caller), &id, creator, lifetime).await?;
    let sandbox = sandbox_to_api(&app.nfs, &caller, info)?;
    let (sandbox_id, details) = (Some(id), json!({ "expires_at": sandbox.expires_at }));
    app.audit
        .record(Entry { sandbox_id, ..Entry::for_caller("sandbox.resumed", &caller, &request, details) });
    Ok(Json(sandbox))
}
