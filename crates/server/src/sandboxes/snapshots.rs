//! `/api/v1/sandboxes/{id}/commit`, `restore`, `fork` and `changes`: sandboxes and the snapshots of what they hold.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use workspace_sandbox::runtime::WorkspaceUser;
use workspace_sandbox::{Creator, Fork, NewCommit, Pause};
use workspace_state::{Snapshot as Record, TreePath};

use super::{Sandbox, scope};
use crate::app::App;
use crate::audit::Entry;
use crate::auth::Caller;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Json, Optional, Path, Query};
use crate::request::RequestId;
use crate::snapshots::{Diff, DiffQuery, Patches, Snapshot};
use crate::store::{blocking, blocking_until};

/// What to say about the snapshot.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Commit {
    /// Why it is made.
    #[serde(default)]
    #[schema(max_length = 65536)]
    message: String,
    /// Free labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Whether it is on disk before this is answered.
    #[serde(default)]
    durability: DurabilityChoice,
}

/// When a commit is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum DurabilityChoice {
    /// When it is on disk.
    #[default]
    Synced,
    /// At once: a crash of the machine may lose it.
    Buffered,
}

/// How everything in the sandbox was stopped while it was read.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FrozenBy {
    /// By its control group (`cgroup`), by signals to every process (`signals`), or not at all, because nothing ran (`none`).
    #[schema(example = "cgroup")]
    way: String,
    /// How many processes, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<usize>,
    /// For how long.
    milliseconds: f64,
}

impl From<Pause> for FrozenBy {
    fn from(pause: Pause) -> Self {
        Self {
            way: pause.frozen.map_or("none".to_owned(), |frozen| frozen.method.to_string()),
            processes: pause.frozen.and_then(|frozen| frozen.processes),
            milliseconds: (pause.lasted.as_secs_f64() * 1e6).round() / 1e3,
        }
    }
}

/// Something that no snapshot holds.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Left {
    #[schema(value_type = String)]
    path: TreePath,
    /// Why.
    reason: String,
}

/// Entries that no snapshot holds, as the API has them.
fn left(skipped: &[workspace_state::Skipped]) -> Vec<Left> {
    let one = |skipped: &workspace_state::Skipped| Left {
        path: TreePath(skipped.path.as_os_str().as_bytes().to_vec()),
        reason: skipped.reason.to_string(),
    };
    skipped.iter().map(one).collect()
}

/// A snapshot of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Committed {
    snapshot: Snapshot,
    /// Entries that are not in it, the first thousand.
    skipped: Vec<Left>,
    /// Number of all entries that are not in it.
    #[serde(rename = "skippedCount")]
    #[schema(value_type = usize)]
    skipped_count: u64,
    frozen: FrozenBy,
}

/// What the sandbox is to hold.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    /// The snapshot.
    snapshot: String,
    /// Whether processes that are in a directory below the workspace, or have something of it open or mapped, are ended; otherwise
    /// their being there is an error.
    #[serde(default = "yes")]
    force: bool,
}

fn yes() -> bool {
    true
}

/// A sandbox that was restored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Restored {
    sandbox: Sandbox,
    /// The processes that were ended.
    ended: Vec<Process>,
    frozen: FrozenBy,
}

/// A process that used the workspace.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Process {
    /// Its number, inside.
    pid: i32,
    /// What it calls itself.
    command: String,
    /// How it used it: `cwd`, `root`, `descriptor`, `mapping`, or `hidden` if it did not let that be seen.
    why: String,
}

impl From<WorkspaceUser> for Process {
    fn from(user: WorkspaceUser) -> Self {
        Self { pid: user.pid, command: user.command, why: user.why.to_string() }
    }
}

/// Sandboxes like this one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkOrder {
    /// How many.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000)]
    count: u32,
    /// Seconds until they end by themselves.
    #[serde(default, alias = "timeoutSeconds")]
    #[schema(minimum = 1)]
    timeout_seconds: Option<u64>,
    /// Labels in addition to those of the sandbox.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// What to say about the snapshot that they are made from.
    #[serde(default)]
    message: String,
}

fn one() -> u32 {
    1
}

impl Default for ForkOrder {
    fn default() -> Self {
        Self { count: one(), timeout_seconds: None, labels: BTreeMap::new(), message: String::new() }
    }
}

/// Sandboxes made from another one's present state.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Forked {
    /// What they were made from.
    snapshot: Snapshot,
    /// The sandboxes.
    sandboxes: Vec<Sandbox>,
    frozen: FrozenBy,
}

/// What differs between a sandbox's workspace and what it was made from.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Changes {
    /// The snapshot that it was made from; none for one that began empty.
    base: Option<String>,
    #[serde(flatten)]
    diff: Diff,
    /// Entries that no snapshot can hold, the first thousand.
    skipped: Vec<Left>,
    /// Number of all entries that no snapshot can hold.
    #[serde(rename = "skippedCount")]
    #[schema(value_type = usize)]
    skipped_count: u64,
    frozen: FrozenBy,
}

async fn shown(app: &App, record: Record) -> Result<Snapshot, ApiError> {
    let store = app.store.clone();
    blocking(move || Snapshot::new(record, &store.references()?)).await
}

/// Takes down in the audit log what was done with a sandbox.
fn tell(app: &App, id: &str, entry: Entry) {
    app.audit.record(Entry { sandbox_id: Some(id.to_owned()), ..entry });
}

/// Make what a sandbox holds a snapshot. Everything in it stands still while it is read, and goes on.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/commit", tag = "sandboxes", operation_id = "commit_sandbox", params(("id" = String, Path)), request_body = Option<Commit>, responses(
    (status = 201, description = "The snapshot", body = Committed),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn commit(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(order): Optional<Commit>,
) -> Result<(StatusCode, Json<Committed>), ApiError> {
    let buffered = order.durability == DurabilityChoice::Buffered;
    let new = NewCommit { message: order.message, labels: order.labels, buffered };
    let taken = app.sandboxes.commit(&scope(&caller), &id, new).await?;
    let snapshot = taken.committed.snapshot;
    let details = json!({ "snapshot": snapshot.id.to_string() });
    tell(&app, &id, Entry::by("sandbox.committed", &caller, &request, details));
    let (skipped, skipped_count) = (left(&taken.committed.skipped), taken.committed.skipped_count);
    let snapshot = shown(&app, snapshot).await?;
    let committed = Committed { snapshot, skipped, skipped_count, frozen: taken.pause.into() };
    Ok((StatusCode::CREATED, Json(committed)))
}

/// Make a running sandbox hold another snapshot, in place. Processes that are in `/workspace` itself go on in the restored one;
/// those that are in a directory below it, or have something of it open or mapped, end.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/restore", tag = "sandboxes", operation_id = "restore_sandbox", params(("id" = String, Path)), request_body = Restore, responses(
    (status = 200, description = "The sandbox", body = Restored),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn restore(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(order): Json<Restore>,
) -> Result<Json<Restored>, ApiError> {
    let scope = scope(&caller);
    app.sandboxes.get(&scope, &id).await?;
    let snapshot = app.snapshots().find(&scope, &order.snapshot).await?.id;
    let restored = app.sandboxes.restore(&scope, &id, snapshot, order.force).await?;
    let ended: Vec<Process> = restored.ended.into_iter().map(Process::from).collect();
    let details = json!({ "snapshot": snapshot.to_string(), "ended": ended.len() });
    tell(&app, &id, Entry::by("sandbox.restored", &caller, &request, details));
    Ok(Json(Restored { sandbox: restored.view.try_into()?, ended, frozen: restored.pause.into() }))
}

/// Make sandboxes like one, that hold what it holds now. All of them run when this answers, or none is made.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/fork", tag = "sandboxes", operation_id = "fork_sandbox", params(("id" = String, Path)), request_body = Option<ForkOrder>, responses(
    (status = 201, description = "The sandboxes", body = Forked),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn fork(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Optional(order): Optional<ForkOrder>,
) -> Result<(StatusCode, Json<Forked>), ApiError> {
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
    let sandboxes = forked.views.into_iter().map(TryInto::try_into).collect::<Result<_, ApiError>>()?;
    let snapshot = shown(&app, snapshot).await?;
    Ok((StatusCode::CREATED, Json(Forked { snapshot, sandboxes, frozen: forked.taken.pause.into() })))
}

/// Tell what a sandbox changed in its workspace.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/changes", tag = "sandboxes", operation_id = "get_changes", params(("id" = String, Path), DiffQuery), responses(
    (status = 200, description = "What differs from what the workspace was made from; a patch with `patch=true`",
        content((Changes = "application/json"), (String = "text/x-diff"))),
    (status = "default", description = "An error", body = ErrorBody),
))]
pub(super) async fn changes(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<DiffQuery>,
) -> Result<Response, ApiError> {
    let limit = query.check()?;
    let turn = app.turns.comparison(&caller.owner).await;
    let (changes, pause) = app.sandboxes.changes(&scope(&caller), &id).await?;
    // The trees have the flag of their request, which outlives the call.
    let cancel = changes.before.store().cancel().clone();
    if query.patch {
        let patches = blocking_until(&cancel, move || {
            let _turn = turn;
            Ok(Patches::new(changes.before, changes.after, limit)?)
        });
        return patches.await?.answer(&app.turns, &caller.owner).await;
    }
    let answer = blocking_until(&cancel, move || {
        let _turn = turn;
        let compare = if query.insight { Diff::judged } else { Diff::plain };
        Ok(Changes {
            base: changes.base.map(|id| id.to_string()),
            diff: compare(&changes.before, &changes.after, limit)?,
            skipped: left(&changes.skipped),
            skipped_count: changes.skipped_count,
            frozen: pause.into(),
        })
    });
    Ok(Json(answer.await?).into_response())
}
