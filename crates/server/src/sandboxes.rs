//! `/api/v1/sandboxes`: life cycle of sandboxes, their logs and statistics.

mod conversion;
pub(crate) mod creations;
mod metrics;
mod pauses;
mod snapshots;

use std::collections::BTreeMap;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::access::Right;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::sandboxes::{
    BatchCompletion, BatchDelete, BatchDeleteResult, BatchFailure, CreateSandbox, DeleteSandboxQuery,
    DeleteSandboxResult, ExtendSandbox, ListSandboxesQuery, Logs, LogsQuery, Sandbox, SandboxList,
    SandboxStats, SetTimeout, UpdateSandbox,
};
use workspace_catalog::{Filter, VisibleState};
use workspace_context::projects::check_name as check_project_name;
use workspace_sandbox::{
    Creator, EndCompletion, FORKS_MAX, KeptWorkspace, OnEnd, ReclaimPolicy, RemoveRequest, Removed,
};

pub(crate) use conversion::sandbox_to_api;
use conversion::{ParameterOrigin, check_logs, expiry, new_sandbox, stats_to_api};
pub(crate) use snapshots::{freeze_to_api, process_to_api, skipped_to_api};

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::{ApiError, invalid_cursor};
use crate::extract::{Json, Path, Query};
use crate::projects::{ProjectFiles, workspace_of_project};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;

/// Maximum number of sandboxes in a `batch-delete`: the result of a fork can be deleted at once.
const BATCH_MAX: usize = FORKS_MAX as usize;
/// Maximum length of an idempotency key.
const KEY_MAX: usize = 255;

#[derive(OpenApi)]
#[openapi(paths(
    create,
    list,
    fetch,
    patch,
    remove,
    remove_many,
    extend,
    set_timeout,
    logs,
    stats,
    metrics::metrics,
    pauses::pause,
    pauses::resume,
    snapshots::commit,
    snapshots::restore,
    snapshots::fork,
    snapshots::changes
))]
struct Document;

/// Rules of the routes. A fork needs a key, because it creates sandboxes that a token could not use.
const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/sandboxes"),
    Rule::only_keys("POST", "/api/v1/sandboxes"),
    Rule::only_keys("POST", "/api/v1/sandboxes/batch-delete"),
    Rule::any_token("GET", "/api/v1/sandboxes/{id}"),
    Rule::right("PATCH", "/api/v1/sandboxes/{id}", Right::Lifecycle),
    Rule::right("DELETE", "/api/v1/sandboxes/{id}", Right::Lifecycle),
    Rule::right("GET", "/api/v1/sandboxes/{id}/changes", Right::FilesRead),
    Rule::right("POST", "/api/v1/sandboxes/{id}/commit", Right::Snapshot),
    Rule::right("POST", "/api/v1/sandboxes/{id}/extend", Right::Lifecycle),
    Rule::only_keys("POST", "/api/v1/sandboxes/{id}/fork"),
    Rule::right("POST", "/api/v1/sandboxes/{id}/pause", Right::Lifecycle),
    Rule::right("POST", "/api/v1/sandboxes/{id}/restore", Right::Snapshot),
    Rule::right("POST", "/api/v1/sandboxes/{id}/resume", Right::Lifecycle),
    Rule::right("GET", "/api/v1/sandboxes/{id}/logs", Right::Process),
    Rule::any_token("GET", "/api/v1/sandboxes/{id}/stats"),
    Rule::any_token("GET", "/api/v1/sandboxes/{id}/metrics"),
    Rule::right("PUT", "/api/v1/sandboxes/{id}/timeout", Right::Lifecycle),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/sandboxes", get(list).post(create))
        .route("/api/v1/sandboxes/batch-delete", post(remove_many))
        .route("/api/v1/sandboxes/{id}", get(fetch).patch(patch).delete(remove))
        .route("/api/v1/sandboxes/{id}/changes", get(snapshots::changes))
        .route("/api/v1/sandboxes/{id}/commit", post(snapshots::commit))
        .route("/api/v1/sandboxes/{id}/extend", post(extend))
        .route("/api/v1/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/api/v1/sandboxes/{id}/pause", post(pauses::pause))
        .route("/api/v1/sandboxes/{id}/restore", post(snapshots::restore))
        .route("/api/v1/sandboxes/{id}/resume", post(pauses::resume))
        .route("/api/v1/sandboxes/{id}/logs", get(logs))
        .route("/api/v1/sandboxes/{id}/metrics", get(metrics::metrics))
        .route("/api/v1/sandboxes/{id}/stats", get(stats))
        .route("/api/v1/sandboxes/{id}/timeout", put(set_timeout));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Create a sandbox.
///
/// The sandbox is running when the response is sent. A repeated request with the same `Idempotency-Key` returns the
/// sandbox of the first request.
#[utoipa::path(post, path = "/api/v1/sandboxes", tag = "sandboxes", operation_id = "create_sandbox", request_body = CreateSandbox,
    params(("Idempotency-Key" = Option<String>, Header, description = "Unique text of your choice, 1 to 255 visible ASCII characters. A retry with the same key and body does not repeat the operation")),
    responses(
        (status = 201, description = "New sandbox", body = Sandbox),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    headers: HeaderMap,
    Json(mut body): Json<CreateSandbox>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let began = Instant::now();
    let key = idempotency_key(&headers)?;
    let hash = || serde_json::to_vec(&body).map(|bytes| blake3::hash(&bytes).to_hex().to_string());
    let key = match key {
        Some(key) => Some((key, hash().map_err(ApiError::internal)?)),
        None => None,
    };
    let creator = Creator {
        owner: caller.owner.clone(),
        unlimited: caller.is_admin(),
        max_sandboxes: caller.limits.max_sandboxes,
        idempotency_key: key,
    };
    let (template, origin) = (body.template.clone(), ParameterOrigin::from_request(&body));
    if let Some(snapshot) = &body.snapshot {
        // A snapshot of another owner does not exist for the caller.
        app.snapshots().find(&scope(&caller), snapshot).await?;
    }
    let files = project_files(&app, &caller, &mut body).await?;
    let new = new_sandbox(body, &caller.name, files)?;
    let created = app.sandboxes.create(creator, new).await.map_err(ApiError::from);
    app.creations.observe(origin, began.elapsed(), created.as_ref().err());
    let info = created?;
    app.audit.record(Entry {
        sandbox_id: Some(info.sandbox.id.clone()),
        duration_ms: u64::try_from(began.elapsed().as_millis()).ok(),
        ..Entry::for_caller("sandbox.created", &caller, &request, json!({ "template": template }))
    });
    Ok((StatusCode::CREATED, Json(sandbox_to_api(&app.nfs, &caller, info)?)))
}

/// Returns the files of the project that a request names; `None` if it names none. Replaces project and agent of the
/// request by their names, by which lists are filtered.
async fn project_files(
    app: &App,
    caller: &Caller,
    body: &mut CreateSandbox,
) -> Result<Option<ProjectFiles>, ApiError> {
    let Some(project) = &body.project else {
        if body.follow.is_some() {
            let message = "only a sandbox of a project can follow it: send `project`, or leave out `follow`";
            return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "follow"));
        }
        if body.on_end.is_some() {
            let message =
                "only a sandbox of a project has changes to complete: send `project`, or leave out `onEnd`";
            return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "onEnd"));
        }
        if body.base_snapshot.is_some() {
            let message = "only a sandbox of a project starts with a state of it: send `project`, or `snapshot` instead";
            return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "baseSnapshot"));
        }
        return Ok(None);
    };
    if body.base_snapshot.is_some() && body.follow.is_some() {
        let message =
            "a sandbox that follows the project starts with its head: leave out `baseSnapshot` or `follow`";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "baseSnapshot"));
    }
    check_project_name(project).map_err(|error| {
        ApiError::new(error_codes::INVALID_REQUEST, error.to_string()).detail("field", "project")
    })?;
    if body.snapshot.is_some() {
        let message = "a sandbox of a project starts with the files of the project: send `project` or `snapshot`, not both";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "snapshot"));
    }
    let (agent, at) = (body.agent.as_deref(), body.base_snapshot.as_ref());
    let (name, files) = workspace_of_project(app, caller, project, agent, at).await?;
    (body.project, body.agent) = (Some(name), Some(files.base.agent.clone()));
    Ok(Some(files))
}

/// Returns the header `Idempotency-Key`; `None` if it is absent.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = || {
        let message = format!("an idempotency key has 1 to {KEY_MAX} visible ASCII characters");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("header", "Idempotency-Key")
    };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_MAX);
    text.map(|text| Some(text.to_owned())).ok_or_else(wrong)
}

/// List sandboxes, the newest first.
#[utoipa::path(get, path = "/api/v1/sandboxes", tag = "sandboxes", operation_id = "list_sandboxes", params(ListSandboxesQuery), responses(
    (status = 200, description = "Page of sandboxes", body = SandboxList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListSandboxesQuery>,
) -> Result<Json<SandboxList>, ApiError> {
    let (page, limit) = (query.page.unwrap_or(1), query.limit.unwrap_or(20));
    let cursor = query.cursor.as_deref().map(|cursor| parse_cursor(cursor, query.page)).transpose()?;
    if page == 0 || !(1..=workspace_catalog::PAGE_SIZE_MAX).contains(&limit) {
        let message = "page must be at least 1, and limit must be between 1 and 100";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message));
    }
    let state = match query.state.as_deref() {
        Some(word) => Some(word.parse::<VisibleState>().map_err(|_| invalid_state(word))?),
        None => None,
    };
    let labels = query.labels.as_deref().map(parse_labels).transpose()?.unwrap_or_default();
    let filter = Filter {
        owner: None,
        agent_owner_prefix: None,
        state,
        name_prefix: query.name_prefix,
        labels,
        project_name: query.project,
        agent_name: query.agent,
        cursor,
        page,
        limit,
    };
    let (infos, total) = app.sandboxes.list(&scope(&caller), filter).await?;
    let next = infos.last().filter(|_| infos.len() == limit as usize);
    let next = next.map(|last| format!("{}.{}", last.sandbox.created_at, last.sandbox.id));
    let items = infos
        .into_iter()
        .map(|info| sandbox_to_api(&app.nfs, &caller, info))
        .collect::<Result<_, ApiError>>()?;
    Ok(Json(SandboxList { items, total, page, limit, next }))
}

/// Parses a cursor: creation time and id of the last sandbox of a page.
fn parse_cursor(cursor: &str, page: Option<u32>) -> Result<(i64, String), ApiError> {
    let parsed = cursor.split_once('.').and_then(|(time, id)| Some((time.parse().ok()?, id.to_owned())));
    parsed.filter(|_| page.is_none()).ok_or_else(invalid_cursor)
}

fn invalid_state(word: &str) -> ApiError {
    let words: Vec<_> = VisibleState::ALL.iter().map(|state| state.as_str()).collect();
    let message = format!("`{word}` is not a state; the states are {}", words.join(", "));
    ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "state")
}

fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let wrong = || ApiError::new(error_codes::INVALID_REQUEST, "labels: the form is `name=value,name=value`");
    let pairs = text.split(',').map(|pair| pair.split_once('=').ok_or_else(wrong));
    pairs.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// Get a sandbox.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "get_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), responses(
    (status = 200, description = "Sandbox", body = Sandbox),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Sandbox>, ApiError> {
    Ok(Json(sandbox_to_api(&app.nfs, &caller, app.sandboxes.get(&scope(&caller), &id).await?)?))
}

/// Replace the labels of a sandbox.
#[utoipa::path(patch, path = "/api/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "label_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), request_body = UpdateSandbox, responses(
    (status = 200, description = "Sandbox", body = Sandbox),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn patch(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<UpdateSandbox>,
) -> Result<Json<Sandbox>, ApiError> {
    let details = json!({ "labels": body.labels });
    let info = app.sandboxes.relabel(&scope(&caller), &id, body.labels).await?;
    let sandbox_id = Some(id);
    app.audit
        .record(Entry { sandbox_id, ..Entry::for_caller("sandbox.labelled", &caller, &request, details) });
    Ok(Json(sandbox_to_api(&app.nfs, &caller, info)?))
}

/// Delete a sandbox and kill all its processes.
///
/// Its workspace is deleted, too, unless `keep_workspace` is set. For that, a token also needs the right `snapshot`.
///
/// Changes of a sandbox of a project that are not completed are completed first, unless it was created with `onEnd:
/// discard`, or `complete` is false. The response names the completion, and `GET
/// /api/v1/projects/{project}/completions/{completion}` tells what became of it. If the changes cannot be completed, the
/// sandbox stays with its files, `stopped`. To override `discard`, a token needs the right `snapshot`.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "delete_sandbox", params(("id" = String, Path, description = "Id of the sandbox"), DeleteSandboxQuery), responses(
    (status = 200, description = "The sandbox was deleted, and its workspace was kept or its changes were completed", body = DeleteSandboxResult),
    (status = 204, description = "The sandbox was deleted, and nothing is left of it"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Query(query): Query<DeleteSandboxQuery>,
) -> Result<Response, ApiError> {
    if query.keep_workspace || query.complete == Some(true) {
        caller.require(Right::Snapshot)?;
    }
    let wanted = remove_request(query.keep_workspace, query.complete);
    let Removed { kept, completion } = app.sandboxes.remove(&scope(&caller), &id, wanted).await?;
    record_deletion(&app, &caller, &request, &id, completion.as_ref());
    let (workspace_path, snapshot) = match kept {
        KeptWorkspace::None if completion.is_none() => return Ok(StatusCode::NO_CONTENT.into_response()),
        KeptWorkspace::None => (None, None),
        KeptWorkspace::Directory(path) => (Some(path.to_string_lossy().into_owned()), None),
        KeptWorkspace::Snapshot(snapshot) => (None, Some(snapshot.to_string())),
    };
    let (completion, project) = completion.map(|EndCompletion { id, project }| (id, project)).unzip();
    Ok(Json(DeleteSandboxResult { id, workspace_path, snapshot, completion, project }).into_response())
}

fn remove_request(keep_workspace: bool, complete: Option<bool>) -> RemoveRequest {
    let policy = if keep_workspace { ReclaimPolicy::Keep } else { ReclaimPolicy::Delete };
    let on_end = complete.map(|complete| if complete { OnEnd::Complete } else { OnEnd::Discard });
    RemoveRequest { policy, on_end }
}

fn record_deletion(
    app: &App,
    caller: &Caller,
    request: &RequestId,
    id: &str,
    completion: Option<&EndCompletion>,
) {
    let details = match completion {
        Some(completion) => json!({ "completion": completion.id, "project": completion.project }),
        None => json!({}),
    };
    let sandbox_id = Some(id.to_owned());
    app.audit.record(Entry { sandbox_id, ..Entry::for_caller("sandbox.deleted", caller, request, details) });
}

/// Delete several sandboxes.
///
/// The response is 200 even if some could not be deleted; `failed` lists them.
#[utoipa::path(post, path = "/api/v1/sandboxes/batch-delete", tag = "sandboxes", operation_id = "delete_sandboxes", request_body = BatchDelete, responses(
    (status = 200, description = "Result for each sandbox", body = BatchDeleteResult),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn remove_many(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Json(body): Json<BatchDelete>,
) -> Result<Json<BatchDeleteResult>, ApiError> {
    if body.ids.is_empty() || body.ids.len() > BATCH_MAX {
        let message = format!("the number of ids must be between 1 and {BATCH_MAX}");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "ids"));
    }
    let scope = scope(&caller);
    let permit = app.work_limits.read(&caller.owner).await;
    let found = app.sandboxes.find_many(&scope, body.ids).await?;
    drop(permit);
    let (mut succeeded, mut failed, mut completions) = (Vec::new(), Vec::new(), Vec::new());
    let wanted = remove_request(body.keep_workspace, body.complete);
    for (id, removed) in app.sandboxes.remove_many(&scope, found, wanted).await {
        match removed {
            Ok(Removed { completion, .. }) => {
                record_deletion(&app, &caller, &request, &id, completion.as_ref());
                completions.extend(completion.map(|EndCompletion { id: completion, project }| {
                    BatchCompletion { id: id.clone(), completion, project }
                }));
                succeeded.push(id);
            }
            Err(error) => failed.push(BatchFailure { id, error: ApiError::from(error).message().to_owned() }),
        }
    }
    Ok(Json(BatchDeleteResult { succeeded, failed, completions }))
}

/// Extend the lifetime of a sandbox.
///
/// Fails with `LIFETIME_EXCEEDED` if the whole lifetime would exceed `MAX_SANDBOX_LIFETIME` of the server.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/extend", tag = "sandboxes", operation_id = "extend_sandbox", params(("id" = String, Path, description = "Id of the sandbox")), request_body = ExtendSandbox, responses(
    (status = 200, description = "Sandbox", body = Sandbox),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn extend(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<ExtendSandbox>,
) -> Result<Json<Sandbox>, ApiError> {
    let info = app.sandboxes.extend(&scope(&caller), &id, body.seconds).await?;
    let (sandbox_id, details) = (Some(id), json!({ "seconds": body.seconds }));
    app.audit
        .record(Entry { sandbox_id, ..Entry::for_caller("sandbox.extended", &caller, &request, details) });
    Ok(Json(sandbox_to_api(&app.nfs, &caller, info)?))
}

/// Set the time at which a sandbox expires.
///
/// The time may be earlier or later than before. Fails with `LIFETIME_EXCEEDED` if the whole lifetime would exceed
/// `MAX_SANDBOX_LIFETIME` of the server.
#[utoipa::path(put, path = "/api/v1/sandboxes/{id}/timeout", tag = "sandboxes", operation_id = "set_timeout", params(("id" = String, Path, description = "Id of the sandbox")), request_body = SetTimeout, responses(
    (status = 200, description = "Sandbox", body = Sandbox),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn set_timeout(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<SetTimeout>,
) -> Result<Json<Sandbox>, ApiError> {
    let info = app.sandboxes.set_expiry(&scope(&caller), &id, expiry(&body)?).await?;
    let sandbox = sandbox_to_api(&app.nfs, &caller, info)?;
    let (sandbox_id, details) = (Some(id), json!({ "expires_at": sandbox.expires_at }));
    app.audit
        .record(Entry { sandbox_id, ..Entry::for_caller("sandbox.timeout_set", &caller, &request, details) });
    Ok(Json(sandbox))
}

/// Get the logs of a sandbox.
///
/// The logs are the last lines of output of all its commands, ordered by time.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/logs", tag = "sandboxes", operation_id = "sandbox_logs", params(("id" = String, Path, description = "Id of the sandbox"), LogsQuery), responses(
    (status = 200, description = "Lines of output", body = Logs),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn logs(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Result<Json<Logs>, ApiError> {
    let (tail, since, until) = check_logs(&query)?;
    let _permit = app.work_limits.read(&caller.owner).await;
    let logs = app.sandboxes.logs(&scope(&caller), &id, tail, since, until).await?;
    Ok(Json(Logs { logs: logs.text, truncated: logs.truncated }))
}

/// Get the resource usage of a sandbox.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/stats", tag = "sandboxes", operation_id = "sandbox_stats", params(("id" = String, Path, description = "Id of the sandbox")), responses(
    (status = 200, description = "Resource usage", body = SandboxStats),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn stats(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SandboxStats>, ApiError> {
    let stats = app.sandboxes.stats(&scope(&caller), &id).await?;
    Ok(Json(stats_to_api(id, &stats)?))
}
