//! `/api/v1/episodes`: steps of searches over snapshots. An episode is one such step: an action, its reward, and the
//! resulting snapshot. A caller sees a step if it sees the snapshot of the step.

mod searches;

use std::cmp::Ordering;
use std::collections::HashSet;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::OpenApi;
use workspace_api::episodes::{
    CreateEpisode, Episode, EpisodeChildrenQuery, EpisodeList, EpisodePath, EpisodePathQuery, EpisodeSubtree,
    EpisodeSubtreeQuery, ListSearchesQuery, Search, SearchList,
};
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::snapshots::PageQuery;
use workspace_catalog::{EpisodeInsertion, EpisodeQuota, EpisodeUsage, NewEpisode};
use workspace_sandbox::Scope;
use workspace_state::{
    Durability, Episode as Record, EpisodeId, EpisodeSummary, Snapshot, SnapshotId, Store,
};

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::{ApiError, invalid_cursor};
use crate::extract::{Json, Path, Query};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::snapshots::{self, DIFF_LIMIT, WorkPermit, check_page, insight_diff, page_offset};
use crate::store::{blocking, with_store};
use crate::time::format_store_time;

/// Maximum size of a step's action and data together, in bytes of JSON. They must fit in the index of the store.
const TEXT_MAX: usize = 64 << 10;
/// Maximum size of a step's insight diff (a diff with totals and risks, `docs/insight.md`) in bytes of JSON. Entries
/// beyond it are omitted.
const INSIGHT_MAX: usize = 64 << 10;
/// Size in bytes at which a page of steps ends early.
const PAGE_BYTES: usize = 1 << 20;
/// Maximum number of steps of a path in one response.
const PATH_MAX: u32 = 1_000;

fn check_size(request: &CreateEpisode) -> Result<(), ApiError> {
    // The error names the larger field, which is the one to shorten.
    let (action, data) = (json_len(&request.action), request.data.as_ref().map_or(0, json_len));
    let (field, len) = (if action > data { "action" } else { "data" }, action.saturating_add(data));
    if len <= TEXT_MAX {
        return Ok(());
    }
    let message = format!(
        "{field}: action and data have {len} bytes of JSON together, which must be at most {TEXT_MAX}; put larger data into the snapshot"
    );
    let error = ApiError::new(error_codes::PAYLOAD_TOO_LARGE, message);
    Err(error.detail("field", field).detail("limit", TEXT_MAX))
}

fn json_len<T: Serialize>(value: &T) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

fn episode_to_api(record: Record) -> Result<Episode, ApiError> {
    Ok(Episode {
        id: record.id.to_string(),
        snapshot: record.snapshot.to_string(),
        parent: record.parent.map(|parent| parent.to_string()),
        action: record.action,
        reward: record.reward,
        visits: record.visits,
        insight: record.insight,
        data: record.data,
        time: format_store_time(record.time)?,
    })
}

fn episodes_to_api(records: impl IntoIterator<Item = Record>) -> Result<Vec<Episode>, ApiError> {
    records.into_iter().map(episode_to_api).collect()
}

/// Returns the end of the requested part of the path (`None` for the requested step itself), and the maximum number of
/// steps.
fn check_path(query: &EpisodePathQuery) -> Result<(Option<EpisodeId>, u32), ApiError> {
    let limit = Some(query.limit.unwrap_or(PATH_MAX));
    let (_, limit) = check_page(&PageQuery { page: None, limit })?;
    Ok((parse_cursor(query.cursor.as_deref())?, limit))
}

/// Returns the last step before the page, the page number, and the maximum number of steps.
fn check_children(query: &EpisodeChildrenQuery) -> Result<(Option<EpisodeId>, u32, u32), ApiError> {
    let (page, limit) = check_page(&PageQuery { page: query.page, limit: query.limit })?;
    let last = parse_cursor(query.cursor.as_deref())?;
    if last.is_some() && query.page.is_some() {
        return Err(invalid_cursor());
    }
    Ok((last, page, limit))
}

/// Parses a cursor, which is the id of a step.
fn parse_cursor(cursor: Option<&str>) -> Result<Option<EpisodeId>, ApiError> {
    cursor.map(|text| text.parse().map_err(|_| invalid_cursor())).transpose()
}

#[derive(OpenApi)]
#[openapi(paths(list, create, fetch, remove, path, children, best, subtree))]
struct Document;

/// All routes need an API key: they do not accept tokens of sandboxes.
const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/episodes"),
    Rule::only_keys("POST", "/api/v1/episodes"),
    Rule::only_keys("GET", "/api/v1/episodes/{id}"),
    Rule::only_keys("DELETE", "/api/v1/episodes/{id}"),
    Rule::only_keys("GET", "/api/v1/episodes/{id}/path"),
    Rule::only_keys("GET", "/api/v1/episodes/{id}/children"),
    Rule::only_keys("GET", "/api/v1/episodes/{id}/best"),
    Rule::only_keys("GET", "/api/v1/episodes/{id}/subtree"),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/episodes", get(list).post(create))
        .route("/api/v1/episodes/{id}", get(fetch).delete(remove))
        .route("/api/v1/episodes/{id}/path", get(path))
        .route("/api/v1/episodes/{id}/children", get(children))
        .route("/api/v1/episodes/{id}/best", get(best))
        .route("/api/v1/episodes/{id}/subtree", get(subtree));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// List searches, by default the newest first.
#[utoipa::path(get, path = "/api/v1/episodes", tag = "episodes", operation_id = "list_searches", params(ListSearchesQuery), responses(
    (status = 200, description = "Page of searches", body = SearchList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListSearchesQuery>,
) -> Result<Json<SearchList>, ApiError> {
    let (_, limit) = check_page(&PageQuery { page: None, limit: query.limit })?;
    let cursor = parse_cursor(query.cursor.as_deref())?;
    let scope = scope(&caller);
    let _permit = app.work_limits.read(&caller.owner).await;
    let page = searches::page(&app, &scope, cursor, limit, query.sort.unwrap_or_default()).await?;
    let visible = visible(&app, &scope, page.items.iter().map(|(first, _)| first.snapshot)).await?;
    let items = page.items.into_iter().filter(|(first, _)| visible.contains(&first.snapshot));
    let items = items.map(|(first, steps)| Ok(Search { first: episode_to_api(first)?, steps }));
    let next = page.next.map(|id| id.to_string());
    Ok(Json(SearchList { items: items.collect::<Result<_, ApiError>>()?, total: page.total, limit, next }))
}

/// Add a step to a search, or start a search.
///
/// A search is a tree of steps. Each step names the snapshot that it resulted in, and its parent.
#[utoipa::path(post, path = "/api/v1/episodes", tag = "episodes", operation_id = "create_episode", request_body = CreateEpisode, responses(
    (status = 201, description = "New step", body = Episode),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Json(body): Json<CreateEpisode>,
) -> Result<(StatusCode, Json<Episode>), ApiError> {
    check_size(&body)?;
    let scope = scope(&caller);
    check_quota(&app, &scope).await?;
    let snapshot = app.snapshots().find_own(&scope, &body.snapshot).await?;
    let parent = match &body.parent {
        Some(id) => Some(find(&app, &scope, id).await?),
        None => None,
    };
    let mut record =
        Record::new(snapshot.id, parent.as_ref().map(|parent| parent.id), body.action, body.reward);
    record.visits = body.visits.unwrap_or(1);
    record.data = body.data.map_or(Value::Null, Value::Object);
    if body.insight {
        record.insight = Some(insight_since_parent(&app, &caller, parent.as_ref(), snapshot).await?);
    }
    // In a separate task, so that a stored step is recorded even if the client disconnects.
    let stored = tokio::spawn(store_step(app.clone(), quota(&app, &scope), caller.owner.clone(), record));
    let record = stored.await.map_err(ApiError::internal)??;
    let details = json!({ "episode": record.id.to_string(), "snapshot": record.snapshot.to_string() });
    app.audit.record(Entry::for_caller("episode.created", &caller, &request, details));
    Ok((StatusCode::CREATED, Json(episode_to_api(record)?)))
}

/// Returns the quota of an owner; `None` for admins.
fn quota(app: &App, scope: &Scope) -> Option<EpisodeQuota> {
    scope.owner()?;
    let count = app.settings.max_episodes_per_owner.limit().unwrap_or(u64::MAX);
    Some(EpisodeQuota { count, bytes: app.settings.max_episode_bytes_per_owner.0 })
}

/// Fails with `EPISODE_LIMIT_EXCEEDED` if the quota of the owner is used up.
async fn check_quota(app: &App, scope: &Scope) -> Result<(), ApiError> {
    let (Some(owner), Some(quota)) = (scope.owner(), quota(app, scope)) else { return Ok(()) };
    let usage = app.catalog.episodes().usage(owner).await?;
    if usage.count >= quota.count || usage.bytes >= quota.bytes {
        return Err(quota_exceeded(owner, usage, quota));
    }
    Ok(())
}

fn quota_exceeded(owner: &str, usage: EpisodeUsage, quota: EpisodeQuota) -> ApiError {
    let (limit, what, setting) = if usage.count >= quota.count {
        (quota.count, "episodes", "MAX_EPISODES_PER_OWNER")
    } else {
        (quota.bytes, "bytes of episodes", "MAX_EPISODE_BYTES_PER_OWNER")
    };
    let message = format!("`{owner}` may have at most {limit} {what}; delete some, or raise {setting}");
    ApiError::new(error_codes::EPISODE_LIMIT_EXCEEDED, message)
        .detail("limit", limit)
        .detail("setting", setting)
}

/// Records the owner of a step and stores it. If the server crashes in between, the record counts against the quota
/// until the next start.
async fn store_step(
    app: App,
    quota: Option<EpisodeQuota>,
    owner: String,
    record: Record,
) -> Result<Record, ApiError> {
    let (id, bytes) = (record.id.to_string(), json_len(&record) as u64);
    let server = &app.sandboxes.settings().server;
    let parent = record.parent.map(|parent| parent.to_string());
    let new = NewEpisode { id: &id, owner: &owner, server, bytes, parent: parent.as_deref() };
    // A snapshot that was made automatically after a command must be kept: the older ones of a sandbox are deleted.
    app.catalog.snapshots().keep(&record.snapshot.to_string()).await?;
    let insertion = app.catalog.episodes().insert(&new, quota).await?;
    if let (EpisodeInsertion::QuotaExceeded(usage), Some(quota)) = (insertion, quota) {
        return Err(quota_exceeded(&owner, usage, quota));
    }
    let store = app.store.clone();
    let put = blocking(move || {
        store.put_episode(&record, Durability::Synced)?;
        Ok(record)
    });
    let put = put.await;
    if put.is_err()
        && let Err(error) = app.catalog.episodes().remove(Some(server), std::slice::from_ref(&id)).await
    {
        tracing::warn!(episode = id, %error, "failed to remove the record of an episode that was not stored");
    }
    put
}

/// Returns the insight diff from the snapshot of `parent` to `to`, at most [`INSIGHT_MAX`] bytes of JSON. Fails with
/// `INVALID_REQUEST` without a parent.
async fn insight_since_parent(
    app: &App,
    caller: &Caller,
    parent: Option<&Record>,
    to: Snapshot,
) -> Result<Value, ApiError> {
    let Some(parent) = parent else {
        let message = "insight: the first step of a search has no parent to compare with";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "insight"));
    };
    let from = app.snapshots().find(&scope(caller), &parent.snapshot.to_string()).await?;
    let permit = app.work_limits.comparison(&caller.owner).await;
    with_store(&app.store, move |store| {
        let _permit = permit;
        let (from, to) = (snapshots::open_tree(store, &from)?, snapshots::open_tree(store, &to)?);
        let insight =
            serde_json::to_value(insight_diff(&from, &to, DIFF_LIMIT)?).map_err(ApiError::internal)?;
        Ok(truncate_diff(insight, INSIGHT_MAX))
    })
    .await
}

/// Drops entries from the end of a diff until it has at most `max` bytes.
fn truncate_diff(mut diff: Value, max: usize) -> Value {
    let mut len = json_len(&diff);
    if len <= max {
        return diff;
    }
    if let Some(entries) = diff.get_mut("entries").and_then(Value::as_array_mut) {
        while len > max
            && let Some(last) = entries.pop()
        {
            // The comma before the entry goes with it.
            len -= json_len(&last) + 1;
        }
    }
    diff["truncated"] = true.into();
    diff
}

/// Get a step of a search.
#[utoipa::path(get, path = "/api/v1/episodes/{id}", tag = "episodes", operation_id = "get_episode", params(("id" = String, Path, description = "Id of the step")), responses(
    (status = 200, description = "Step", body = Episode),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Episode>, ApiError> {
    Ok(Json(episode_to_api(find(&app, &scope(&caller), &id).await?)?))
}

/// Delete a step and all steps after it.
///
/// Their snapshots are kept. If later steps belong to another owner, the request fails with `EPISODE_SHARED`.
#[utoipa::path(delete, path = "/api/v1/episodes/{id}", tag = "episodes", operation_id = "delete_episode", params(("id" = String, Path, description = "Id of the step")), responses(
    (status = 204, description = "Deleted"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(text): Path<String>,
) -> Result<StatusCode, ApiError> {
    let id: EpisodeId = text.parse().map_err(|_| episode_not_found(&text))?;
    let scope = scope(&caller);
    if find_foreign(&app, &scope, vec![id]).await?.is_some() {
        return Err(episode_not_found(&text));
    }
    let permit = app.work_limits.read(&caller.owner).await;
    let links = with_store(&app.store, move |store| match store.episode(&id)? {
        Some(_) => Ok(Some(store.episode_links(&id)?)),
        None => Ok(None),
    });
    let Some(links) = links.await? else {
        // A step that is not in the store must not count against the quota. It may be in the store of another server.
        app.catalog.episodes().remove(Some(&app.sandboxes.settings().server), &[id.to_string()]).await?;
        return Err(episode_not_found(&text));
    };
    let ids: Vec<EpisodeId> = links.iter().map(|link| link.0).collect();
    if find_foreign(&app, &scope, ids.clone()).await?.is_some() {
        let message =
            format!("later steps of episode {id} belong to another owner; ask an administrator to delete it");
        return Err(ApiError::new(error_codes::EPISODE_SHARED, message).detail("episodeId", text));
    }
    // In a separate task, so that the records of removed steps are removed even if the client disconnects.
    let task_app = app.clone();
    let deleted = tokio::spawn(async move {
        let _permit = permit;
        let store = task_app.store.clone();
        blocking(move || Ok(store.remove_episode_links(&links)?)).await?;
        let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
        // The steps were in this store, so their records are removed even if the server had another name when it stored
        // them.
        task_app.catalog.episodes().remove(None, &names).await?;
        Ok::<_, ApiError>(names.len())
    });
    let count = deleted.await.map_err(ApiError::internal)??;
    let details = json!({ "episode": text, "count": count });
    app.audit.record(Entry::for_caller("episode.deleted", &caller, &request, details));
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the first step that the owner may not delete, because the owner neither created it nor owns its snapshot;
/// `None` if the owner may delete all. A step whose snapshot was removed still belongs to its creator.
async fn find_foreign(app: &App, scope: &Scope, ids: Vec<EpisodeId>) -> Result<Option<EpisodeId>, ApiError> {
    let Some(owner) = scope.owner() else { return Ok(None) };
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let owned = app.catalog.episodes().owned(owner, &names).await?;
    let others = ids.into_iter().zip(names).filter(|(_, name)| !owned.contains(name));
    for (id, _) in others.collect::<Vec<_>>() {
        let store = app.store.clone();
        // Steps from before owners were recorded belong to the owner of their snapshot.
        let found = blocking(move || Ok(store.episode(&id)?)).await?;
        if filter_visible(app, scope, found.into_iter().collect()).await?.is_empty() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Get the steps from the start of a search to a step.
///
/// Steps whose snapshots were removed are omitted.
#[utoipa::path(get, path = "/api/v1/episodes/{id}/path", tag = "episodes", operation_id = "get_episode_path",
    params(("id" = String, Path, description = "Id of the step"), EpisodePathQuery), responses(
    (status = 200, description = "Steps; the last ones if there are more than `limit`", body = EpisodePath),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn path(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<EpisodePathQuery>,
) -> Result<Json<EpisodePath>, ApiError> {
    let (last, limit) = check_path(&query)?;
    let scope = scope(&caller);
    let permit = app.work_limits.read(&caller.owner).await;
    let found = read_visible(&app, permit, &scope, &id, move |store, id| {
        let last = last.unwrap_or(*id);
        // The cursor must be a step on the path to the requested step.
        if !store.episode_leads_to(&last, id)? {
            return Err(invalid_cursor());
        }
        Ok(store.episode_path_end(&last, limit as usize, PAGE_BYTES)?)
    });
    let (found, _permit) = found.await?;
    let next = found.first().and_then(|first| first.parent).map(|id| id.to_string());
    Ok(Json(EpisodePath { items: episodes_to_api(filter_visible(&app, &scope, found).await?)?, next }))
}

/// List the steps that directly follow a step.
#[utoipa::path(get, path = "/api/v1/episodes/{id}/children", tag = "episodes", operation_id = "list_episode_children",
    params(("id" = String, Path, description = "Id of the step"), EpisodeChildrenQuery), responses(
    (status = 200, description = "Page of steps", body = EpisodeList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn children(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<EpisodeChildrenQuery>,
) -> Result<Json<EpisodeList>, ApiError> {
    let (last, page, limit) = check_children(&query)?;
    let scope = scope(&caller);
    let permit = app.work_limits.read(&caller.owner).await;
    let found = read_visible(&app, permit, &scope, &id, move |store, id| {
        let ids = store.episode_children_ids(Some(id))?;
        // Ids sort by creation time: the oldest is first.
        let before = ids.partition_point(|id| last.is_some_and(|last| *id <= last));
        let rest = ids.get(before.saturating_add(page_offset(page, limit))..).unwrap_or_default();
        let wanted = &rest[..rest.len().min(limit as usize)];
        let items = store.episodes_within(wanted, PAGE_BYTES)?;
        let end = items.last().map(|last| last.id);
        Ok((ids.len(), end.filter(|end| rest.last() != Some(end)), items))
    });
    let ((total, next, items), _permit) = found.await?;
    let items = episodes_to_api(filter_visible(&app, &scope, items).await?)?;
    let next = next.map(|id| id.to_string());
    Ok(Json(EpisodeList { items, total, page, limit, next }))
}

/// Get the best final step after a step.
///
/// That is the step with the highest reward among those that no step follows; the step itself if none follows it. If
/// rewards are equal, the one with more visits is returned, then the newer one.
#[utoipa::path(get, path = "/api/v1/episodes/{id}/best", tag = "episodes", operation_id = "get_best_episode", params(("id" = String, Path, description = "Id of the step")), responses(
    (status = 200, description = "Step", body = Episode),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn best(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Episode>, ApiError> {
    let scope = scope(&caller);
    // All steps after the requested one are read, so the request needs the permit of a costly operation.
    let permit = app.work_limits.comparison(&caller.owner).await;
    let found = read_visible(&app, permit, &scope, &id, |store, id| Ok(store.episode_summaries(id)?));
    let (found, _permit) = found.await?;
    let visible = visible(&app, &scope, found.iter().map(|one| one.snapshot)).await?;
    let candidates = found.into_iter().filter(|one| visible.contains(&one.snapshot)).collect();
    let best = best_of(candidates).ok_or_else(|| episode_not_found(&id))?;
    Ok(Json(episode_to_api(find(&app, &scope, &best.id.to_string()).await?)?))
}

/// Get a step and all steps after it, in one response.
#[utoipa::path(get, path = "/api/v1/episodes/{id}/subtree", tag = "episodes", operation_id = "get_episode_subtree",
    params(("id" = String, Path, description = "Id of the step"), EpisodeSubtreeQuery), responses(
    (status = 200, description = "Steps", body = EpisodeSubtree),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn subtree(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<EpisodeSubtreeQuery>,
) -> Result<Json<EpisodeSubtree>, ApiError> {
    let (depth, limit) = searches::check_subtree(&query)?;
    let scope = scope(&caller);
    let permit = app.work_limits.comparison(&caller.owner).await;
    let found = read_visible(&app, permit, &scope, &id, move |store, id| {
        let (ids, has_more) = store.episode_levels(id, depth, limit)?;
        let items = store.episodes_within(&ids, searches::SUBTREE_BYTES)?;
        let is_cut = items.last().map(|last| last.id) != ids.last().copied();
        Ok((items, has_more || is_cut))
    });
    let ((items, truncated), _permit) = found.await?;
    let items = episodes_to_api(filter_visible(&app, &scope, items).await?)?;
    Ok(Json(EpisodeSubtree { items, truncated }))
}

/// Returns the leaf with the highest reward; more visits, then the newer id, break a tie.
fn best_of(episodes: Vec<EpisodeSummary>) -> Option<EpisodeSummary> {
    let parents: HashSet<EpisodeId> = episodes.iter().filter_map(|episode| episode.parent).collect();
    let better = |a: &EpisodeSummary, b: &EpisodeSummary| -> Ordering {
        a.reward.total_cmp(&b.reward).then_with(|| (a.visits, a.id).cmp(&(b.visits, b.id)))
    };
    episodes.into_iter().filter(|episode| !parents.contains(&episode.id)).max_by(better)
}

/// Returns a step that is visible in the scope. The id must be complete.
async fn find(app: &App, scope: &Scope, text: &str) -> Result<Record, ApiError> {
    let id: EpisodeId = text.parse().map_err(|_| episode_not_found(text))?;
    let store = app.store.clone();
    let found = blocking(move || Ok(store.episode(&id)?)).await?;
    let found = found.ok_or_else(|| episode_not_found(text))?;
    let visible = filter_visible(app, scope, vec![found]).await?;
    visible.into_iter().next().ok_or_else(|| episode_not_found(text))
}

/// Calls `read` in a thread with the id in `text`, which must be that of a visible step. The permit is held meanwhile,
/// and returned for further work. Cancelled when the client disconnects.
async fn read_visible<T: Send + 'static>(
    app: &App,
    permit: WorkPermit,
    scope: &Scope,
    text: &str,
    read: impl FnOnce(&Store, &EpisodeId) -> Result<T, ApiError> + Send + 'static,
) -> Result<(T, WorkPermit), ApiError> {
    let id = find(app, scope, text).await?.id;
    with_store(&app.store, move |store| Ok((read(store, &id)?, permit))).await
}

/// Filters steps to those whose snapshots are visible in the scope.
async fn filter_visible(app: &App, scope: &Scope, episodes: Vec<Record>) -> Result<Vec<Record>, ApiError> {
    let visible = visible(app, scope, episodes.iter().map(|episode| episode.snapshot)).await?;
    Ok(episodes.into_iter().filter(|episode| visible.contains(&episode.snapshot)).collect())
}

/// Filters snapshots to those that are visible in the scope.
async fn visible(
    app: &App,
    scope: &Scope,
    snapshots: impl Iterator<Item = SnapshotId>,
) -> Result<HashSet<SnapshotId>, ApiError> {
    let ids: HashSet<SnapshotId> = snapshots.collect();
    let ids: Vec<SnapshotId> = ids.into_iter().collect();
    app.snapshots().visible(scope, &ids).await
}

fn episode_not_found(id: &str) -> ApiError {
    ApiError::new(error_codes::EPISODE_NOT_FOUND, format!("there is no episode `{id}`"))
        .detail("episodeId", id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_step_is_one_that_nothing_follows() {
        let snapshot = SnapshotId::generate();
        let step = |parent: Option<&EpisodeSummary>, reward, visits| {
            let (id, parent) = (EpisodeId::generate(), parent.map(|parent| parent.id));
            EpisodeSummary { id, snapshot, parent, reward, visits }
        };
        let start = step(None, 9.0, 1);
        let (low, high) = (step(Some(&start), 0.1, 9), step(Some(&start), 0.5, 1));
        let often = step(Some(&start), 0.5, 2);
        assert_eq!(best_of(vec![start.clone()]), Some(start.clone()));
        assert_eq!(best_of(vec![start.clone(), low.clone(), high.clone()]), Some(high.clone()));
        assert_eq!(best_of(vec![start, often.clone(), low, high]), Some(often));
        assert_eq!(best_of(Vec::new()), None);
    }

    #[test]
    fn a_diff_that_is_too_large_loses_its_last_entries() {
        let entries: Vec<Value> =
            (0..1000).map(|number| json!({"path": format!("file {number:04}")})).collect();
        let diff = json!({"entries": entries, "truncated": false});
        assert_eq!(truncate_diff(diff.clone(), 1 << 20), diff);
        let short = truncate_diff(diff, 4096);
        assert!((4000..=4096).contains(&json_len(&short)), "{}", json_len(&short));
        assert_eq!((&short["entries"][0]["path"], &short["truncated"]), (&"file 0000".into(), &true.into()));
    }
}
