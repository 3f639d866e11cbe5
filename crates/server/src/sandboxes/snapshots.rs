//! `/api/v1/sandboxes/{id}/commit`, `restore`, `fork` and `changes`: sandboxes and the snapshots of what they hold.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use workspace_api::diff::DiffQuery;
use workspace_api::error::ErrorBody;
use workspace_api::sandbox_snapshots::{
    CommitSandbox, CommittedSandbox, Durability, ForkSandbox, ForkedSandbox, Freeze, RestoreSandbox,
    RestoredSandbox, SandboxChanges, WorkspaceProcess,
};
use workspace_api::snapshots::{SkippedEntry, Snapshot};
use workspace_sandbox::{Creator, Fork, IfInUse, NewCommit, Pause, runtime};
use workspace_state::{Snapshot as Record, quote_path};

use super::conversion::sandbox_to_api;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path, Query};
use crate::request_id::RequestId;
use crate::snapshots::{Patches, check_diff, insight_diff, plain_diff, snapshot_to_api};
use crate::store::{blocking, blocking_until};

fn freeze_to_api(pause: Pause) -> Freeze {
    Freeze {
        method: pause.frozen.map_or("none".to_owned(), |frozen| frozen.method.to_string()),
        processes: pause.frozen.and_then(|frozen| frozen.processes),
        milliseconds: (pause.lasted.as_secs_f64() * 1e6).round() / 1e3,
    }
}

fn skipped_to_api(skipped: &[workspace_state::Skipped]) -> Vec<SkippedEntry> {
    let entry = |skipped: &workspace_state::Skipped| SkippedEntry {
        path: quote_path(skipped.path.as_os_str().as_bytes()).into_owned(),
        reason: skipped.reason.to_string(),
    };
    skipped.iter().map(entry).collect()
}

fn user_to_api(user: runtime::WorkspaceProcess) -> WorkspaceProcess {
    WorkspaceProcess { pid: user.pid, command: user.command, why: user.usage.to_string() }
}

async fn shown(app: &App, record: Record) -> Result<Snapshot, ApiError> {
    let store = app.store.clone();
    blocking(move || snapshot_to_api(record, &store.references()?)).await
}

/// Records an operation on a sandbox in the audit log.
fn tell(app: &App, id: &str, entry: Entry) {
    app.audit.record(Entry { sandbox_id: Some(id.to_owned()), ..entry });
}

/// Commit the workspace of a sandbox as a snapshot.
///
/// Its processes are frozen while the workspace is read.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/commit", tag = "sandboxes", operation_id = "commit_sandbox", params(("id" = String, Path)), request_body = Option<CommitSandbox>, responses(
    (status = 201, description = "The snapshot", body = CommittedSandbox),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn commit(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(order): Optional<CommitSandbox>,
) -> Result<(StatusCode, Json<CommittedSandbox>), ApiError> {
    let buffered = order.durability == Durability::Buffered;
    let new = NewCommit { message: order.message, labels: order.labels, buffered };
    let taken = app.sandboxes.commit(&scope(&caller), &id, new).await?;
    let snapshot = taken.committed.snapshot;
    let details = json!({ "snapshot": snapshot.id.to_string() });
    tell(&app, &id, Entry::by("sandbox.committed", &caller, &request, details));
    let (skipped, skipped_count) = (skipped_to_api(&taken.committed.skipped), taken.committed.skipped_count);
    let snapshot = shown(&app, snapshot).await?;
    let frozen = freeze_to_api(taken.pause);
    let committed = CommittedSandbox { snapshot, skipped, skipped_count, frozen };
    Ok((StatusCode::CREATED, Json(committed)))
}

/// Restore a snapshot in a running sandbox.
///
/// Processes whose working directory is `/workspace` itself keep running in the restored workspace; those in
/// a directory below it, or with a file of it open or mapped, are ended.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/restore", tag = "sandboxes", operation_id = "restore_sandbox", params(("id" = String, Path)), request_body = RestoreSandbox, responses(
    (status = 200, description = "The sandbox", body = RestoredSandbox),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn restore(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(order): Json<RestoreSandbox>,
) -> Result<Json<RestoredSandbox>, ApiError> {
    let scope = scope(&caller);
    app.sandboxes.get(&scope, &id).await?;
    let snapshot = app.snapshots().find(&scope, &order.snapshot).await?.id;
    let if_in_use = if order.force { IfInUse::EndProcesses } else { IfInUse::Fail };
    let restored = app.sandboxes.restore(&scope, &id, snapshot, if_in_use).await?;
    let ended: Vec<WorkspaceProcess> = restored.ended.into_iter().map(user_to_api).collect();
    let details = json!({ "snapshot": snapshot.to_string(), "ended": ended.len() });
    tell(&app, &id, Entry::by("sandbox.restored", &caller, &request, details));
    let (sandbox, frozen) = (sandbox_to_api(restored.view)?, freeze_to_api(restored.pause));
    Ok(Json(RestoredSandbox { sandbox, ended, frozen }))
}

/// Fork a sandbox: create sandboxes with its present workspace.
///
/// All of them are running when the response is sent, or none is created.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fork", tag = "sandboxes", operation_id = "fork_sandbox", params(("id" = String, Path)), request_body = Option<ForkSandbox>, responses(
    (status = 201, description = "The sandboxes", body = ForkedSandbox),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn fork(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(order): Optional<ForkSandbox>,
) -> Result<(StatusCode, Json<ForkedSandbox>), ApiError> {
    let fork = Fork {
        count: order.count,
        timeout: order.timeout_seconds.map(Duration::from_secs),
        labels: order.labels,
        commit: NewCommit { message: order.message, ..NewCommit::default() },
    };
    let creator = Creator {
        owner: caller.owner.clone(),
        unlimited: caller.is_admin(),
        max_sandboxes: caller.limits.max_sandboxes,
        idempotency_key: None,
    };
    let forked = app.sandboxes.fork(&scope(&caller), &id, creator, fork).await?;
    let snapshot = forked.taken.committed.snapshot;
    let details = json!({ "snapshot": snapshot.id.to_string(), "count": forked.views.len() });
    tell(&app, &id, Entry::by("sandbox.forked", &caller, &request, details));
    let sandboxes = forked.views.into_iter().map(sandbox_to_api).collect::<Result<_, ApiError>>()?;
    let snapshot = shown(&app, snapshot).await?;
    let frozen = freeze_to_api(forked.taken.pause);
    Ok((StatusCode::CREATED, Json(ForkedSandbox { snapshot, sandboxes, frozen })))
}

/// Get the changes in the workspace of a sandbox.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/changes", tag = "sandboxes", operation_id = "get_changes", params(("id" = String, Path), DiffQuery), responses(
    (status = 200, description = "The changes since the workspace was created or restored; a patch with `patch=true`",
        content((SandboxChanges = "application/json"), (String = "text/x-diff"))),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn changes(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<DiffQuery>,
) -> Result<Response, ApiError> {
    let limit = check_diff(&query)?;
    let permit = app.work_limits.comparison(&caller.owner).await;
    let (changes, pause) = app.sandboxes.changes(&scope(&caller), &id).await?;
    // The trees have the flag of their request, which outlives the call.
    let cancel = changes.before.store().cancel().clone();
    if query.patch {
        let patches = blocking_until(&cancel, move || {
            let _permit = permit;
            Ok(Patches::new(changes.before, changes.after, limit)?)
        });
        return patches.await?.answer(&app.work_limits, &caller.owner).await;
    }
    let answer = blocking_until(&cancel, move || {
        let _permit = permit;
        let compare = if query.insight { insight_diff } else { plain_diff };
        Ok(SandboxChanges {
            base: changes.base.map(|id| id.to_string()),
            diff: compare(&changes.before, &changes.after, limit)?,
            skipped: skipped_to_api(&changes.skipped),
            skipped_count: changes.skipped_count,
            frozen: freeze_to_api(pause),
        })
    });
    Ok(Json(answer.await?).into_response())
}
