//! `/api/v1/sandboxes/{id}/commit`, `restore`, `fork` and `changes`: snapshots of the workspaces of sandboxes.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use workspace_api::diff::DiffQuery;
use workspace_api::error::ErrorBody;
use workspace_api::sandbox_snapshots::{
    CommitSandbox, CommitSandboxResult, Durability, ForkSandbox, ForkSandboxResult, Freeze, RestoreSandbox,
    RestoreSandboxResult, SandboxChanges, WorkspaceProcess,
};
use workspace_api::snapshots::{SkippedEntry, Snapshot};
use workspace_sandbox::{Creator, Fork, FreezeTime, IfInUse, NewCommit, runtime};
use workspace_state::{Snapshot as Record, SnapshotId, quote_path};

use super::conversion::{end_choice, sandbox_to_api};
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Optional, Path, Query};
use crate::projects::completed_files;
use crate::reference_names::ReferenceNames;
use crate::request_id::RequestId;
use crate::snapshots::{Patches, check_diff, insight_diff, plain_diff, snapshot_to_api};
use crate::store::{blocking, blocking_until};

pub(crate) fn freeze_to_api(freeze: FreezeTime) -> Freeze {
    Freeze {
        method: freeze.frozen.map_or("none".to_owned(), |frozen| frozen.method.to_string()),
        processes: freeze.frozen.and_then(|frozen| frozen.processes),
        milliseconds: (freeze.lasted.as_secs_f64() * 1e6).round() / 1e3,
    }
}

pub(crate) fn skipped_to_api(skipped: &[workspace_state::SkippedEntry]) -> Vec<SkippedEntry> {
    let entry = |skipped: &workspace_state::SkippedEntry| SkippedEntry {
        path: quote_path(skipped.path.as_os_str().as_bytes()).into_owned(),
        reason: skipped.reason.to_string(),
    };
    skipped.iter().map(entry).collect()
}

pub(crate) fn process_to_api(process: runtime::WorkspaceProcess) -> WorkspaceProcess {
    WorkspaceProcess { pid: process.pid, command: process.command, why: process.usage.to_string() }
}

async fn snapshot_response(app: &App, caller: &Caller, snapshot: Record) -> Result<Snapshot, ApiError> {
    let (store, names) = (app.store.clone(), ReferenceNames::of(&scope(caller)));
    blocking(move || snapshot_to_api(snapshot, &names.list(&store, "")?)).await
}

/// Records an operation on a sandbox in the audit log.
fn record(app: &App, id: &str, entry: Entry) {
    app.audit.record(Entry { sandbox_id: Some(id.to_owned()), ..entry });
}

/// Commit the workspace of a sandbox as a snapshot.
///
/// The processes of the sandbox are frozen while its workspace is read, so the snapshot is consistent.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/commit", tag = "sandboxes", operation_id = "commit_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), request_body = Option<CommitSandbox>, responses(
    (status = 201, description = "New snapshot", body = CommitSandboxResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn commit(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(body): Optional<CommitSandbox>,
) -> Result<(StatusCode, Json<CommitSandboxResult>), ApiError> {
    let buffered = body.durability == Durability::Buffered;
    let new = NewCommit { message: body.message, labels: body.labels, buffered };
    let commit = app.sandboxes.commit(&scope(&caller), &id, new).await?;
    let snapshot = commit.committed.snapshot;
    let details = json!({ "snapshot": snapshot.id.to_string() });
    record(&app, &id, Entry::for_caller("sandbox.committed", &caller, &request, details));
    let (skipped, skipped_count) =
        (skipped_to_api(&commit.committed.skipped), commit.committed.skipped_count);
    let snapshot = snapshot_response(&app, &caller, snapshot).await?;
    let frozen = freeze_to_api(commit.freeze);
    let result = CommitSandboxResult { snapshot, skipped, skipped_count, frozen };
    Ok((StatusCode::CREATED, Json(result)))
}

/// Restore a snapshot in a running sandbox.
///
/// Processes whose working directory is `/workspace` itself keep running and see the restored files. Processes in a
/// directory below it, or with a file of it open or mapped, are killed (see `force`). A token may restore the snapshot
/// that the workspace was created from, and snapshots that were committed in this sandbox.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/restore", tag = "sandboxes", operation_id = "restore_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), request_body = RestoreSandbox, responses(
    (status = 200, description = "Restored sandbox", body = RestoreSandboxResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn restore(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<RestoreSandbox>,
) -> Result<Json<RestoreSandboxResult>, ApiError> {
    let scope = scope(&caller);
    // The snapshot that the workspace was created from was not committed in the sandbox, so `find` would hide it from a
    // token.
    let initial = app.sandboxes.get(&scope, &id).await?.config.snapshot;
    let is_requested = |id: &SnapshotId| caller.grant.is_some() && id.to_string() == body.snapshot;
    let snapshot = match initial.filter(is_requested) {
        Some(initial) => initial,
        None => app.snapshots().find(&scope, &body.snapshot).await?.id,
    };
    let if_in_use = if body.force { IfInUse::KillProcesses } else { IfInUse::Fail };
    let restored = app.sandboxes.restore(&scope, &id, snapshot, if_in_use).await?;
    let ended: Vec<WorkspaceProcess> = restored.killed.into_iter().map(process_to_api).collect();
    let details = json!({ "snapshot": snapshot.to_string(), "ended": ended.len() });
    record(&app, &id, Entry::for_caller("sandbox.restored", &caller, &request, details));
    let (sandbox, frozen) =
        (sandbox_to_api(&app.nfs, &caller, restored.info)?, freeze_to_api(restored.freeze));
    Ok(Json(RestoreSandboxResult { sandbox, ended, frozen }))
}

/// Fork a sandbox: create new sandboxes with a copy of its workspace.
///
/// Processes are not copied. Either all new sandboxes are running when the response is sent, or none is created.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fork", tag = "sandboxes", operation_id = "fork_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), request_body = Option<ForkSandbox>, responses(
    (status = 201, description = "New sandboxes", body = ForkSandboxResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn fork(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(body): Optional<ForkSandbox>,
) -> Result<(StatusCode, Json<ForkSandboxResult>), ApiError> {
    // Held until the forks are made. Their changes begin at the last completed files, which a completion in between
    // would replace.
    let (_lock, completed) = completed_files(&app, &scope(&caller), &id).await?;
    let fork = Fork {
        count: body.count,
        timeout: body.timeout_seconds.map(Duration::from_secs),
        on_end: body.on_end.map(end_choice),
        labels: body.labels,
        commit: NewCommit { message: body.message, ..NewCommit::default() },
        created_by: Some(caller.name.clone()),
        completed,
    };
    let creator = Creator {
        owner: caller.owner.clone(),
        unlimited: caller.is_admin(),
        max_sandboxes: caller.limits.max_sandboxes,
        idempotency_key: None,
    };
    let forked = app.sandboxes.fork(&scope(&caller), &id, creator, fork).await?;
    let snapshot = forked.commit.committed.snapshot;
    let details = json!({ "snapshot": snapshot.id.to_string(), "count": forked.infos.len() });
    record(&app, &id, Entry::for_caller("sandbox.forked", &caller, &request, details));
    let sandboxes = forked
        .infos
        .into_iter()
        .map(|info| sandbox_to_api(&app.nfs, &caller, info))
        .collect::<Result<_, ApiError>>()?;
    let snapshot = snapshot_response(&app, &caller, snapshot).await?;
    let frozen = freeze_to_api(forked.commit.freeze);
    Ok((StatusCode::CREATED, Json(ForkSandboxResult { snapshot, sandboxes, frozen })))
}

/// Get the changes in the workspace of a sandbox.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/changes", tag = "sandboxes", operation_id = "get_changes", params(("id" = String, Path, description = "Id of the sandbox"), DiffQuery), responses(
    (status = 200, description = "Changes since the workspace was created or last restored; with `patch=true`, a patch",
        content((SandboxChanges = "application/json"), (String = "text/x-diff"))),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn changes(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<DiffQuery>,
) -> Result<Response, ApiError> {
    let limit = check_diff(&query)?;
    let permit = app.work_limits.comparison(&caller.owner).await;
    let (changes, freeze) = app.sandboxes.changes(&scope(&caller), &id).await?;
    // The flag cancels work on the trees when the client disconnects.
    let cancel = changes.before.store().cancel_flag().clone();
    if query.patch {
        let patches = blocking_until(&cancel, move || {
            let _permit = permit;
            Ok(Patches::new(changes.before, changes.after, limit)?)
        });
        return patches.await?.into_response(&app.work_limits, &caller.owner).await;
    }
    let response = blocking_until(&cancel, move || {
        let _permit = permit;
        let compare = if query.insight { insight_diff } else { plain_diff };
        Ok(SandboxChanges {
            base: changes.base.map(|id| id.to_string()),
            diff: compare(&changes.before, &changes.after, limit)?,
            skipped: skipped_to_api(&changes.skipped),
            skipped_count: changes.skipped_count,
            frozen: freeze_to_api(freeze),
        })
    });
    Ok(Json(response.await?).into_response())
}
