//! `/api/v1/episodes`: the steps of a search. Whoever sees a step's snapshot sees the step.

#![allow(unused_qualifications, reason = "in what the macros of the description make of queries")]

use std::cmp::Ordering;
use std::collections::HashSet;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, OpenApi, ToSchema};
use workspace_sandbox::Scope;
use workspace_state::{Durability, Episode as Record, EpisodeId, Snapshot, SnapshotId, Store};

use crate::app::{App, Part};
use crate::audit::Entry;
use crate::auth::Caller;
use crate::code;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Json, Path, Query};
use crate::request::RequestId;
use crate::sandboxes::{scope, wrong_cursor};
use crate::snapshots::{self, DIFF_LIMIT, Diff, PageQuery, skipped};
use crate::store::{blocking, with_store};
use crate::time::moment;

/// A step to be kept.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateEpisode {
    /// The snapshot that it led to.
    snapshot: String,
    /// The step before; none for the start of a search.
    parent: Option<String>,
    /// What was done.
    action: String,
    /// What it was worth.
    reward: f64,
    /// How often the search came by; once, when not said.
    visits: Option<u64>,
    /// Whatever else the search wants to keep.
    #[schema(value_type = Option<Object>)]
    data: Option<Map<String, Value>>,
    /// Whether to keep the insight diff against the parent's snapshot, too.
    #[serde(default)]
    insight: bool,
}

/// A step of a search.
#[derive(Debug, Serialize, ToSchema)]
struct Episode {
    #[schema(value_type = String)]
    id: EpisodeId,
    /// The snapshot that it led to.
    #[schema(value_type = String)]
    snapshot: SnapshotId,
    /// The step before; none for the start of a search.
    #[schema(value_type = Option<String>)]
    parent: Option<EpisodeId>,
    /// What was done.
    action: String,
    /// What it was worth.
    reward: f64,
    /// How often the search came by.
    visits: u64,
    /// The insight diff against the parent's snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    insight: Option<Value>,
    /// Whatever else the search wants to keep.
    #[serde(skip_serializing_if = "Value::is_null")]
    data: Value,
    /// When it was added.
    #[schema(format = DateTime)]
    time: String,
}

impl Episode {
    fn new(record: Record) -> Result<Self, ApiError> {
        Ok(Self {
            id: record.id,
            snapshot: record.snapshot,
            parent: record.parent,
            action: record.action,
            reward: record.reward,
            visits: record.visits,
            insight: record.insight,
            data: record.data,
            time: moment(record.time)?,
        })
    }

    fn all(records: impl IntoIterator<Item = Record>) -> Result<Vec<Self>, ApiError> {
        records.into_iter().map(Self::new).collect()
    }
}

/// Steps from the start of a search.
#[derive(Debug, Serialize, ToSchema)]
struct EpisodePath {
    /// The first one first.
    items: Vec<Episode>,
}

/// A page of steps.
#[derive(Debug, Serialize, ToSchema)]
struct EpisodeList {
    /// Oldest first.
    items: Vec<Episode>,
    /// How many there are in all.
    total: usize,
    /// Which page.
    page: u32,
    /// How long a page is.
    limit: u32,
    /// The `cursor` of the next page; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    next: Option<EpisodeId>,
}

/// Which steps.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ChildrenQuery {
    /// Which page, counted from one. Pages shift when steps are added or removed meanwhile; `cursor` does not.
    #[param(minimum = 1, value_type = Option<u64>)]
    page: Option<u32>,
    /// `next` of the page before, instead of `page`.
    cursor: Option<String>,
    /// How long a page is.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl ChildrenQuery {
    /// The step that the page begins behind, the page and how long it is.
    fn check(&self) -> Result<(Option<EpisodeId>, u32, u32), ApiError> {
        let (page, limit) = PageQuery { page: self.page, limit: self.limit }.check()?;
        let last = self.cursor.as_deref().map(|text| text.parse().map_err(|_| wrong_cursor())).transpose()?;
        if last.is_some() && self.page.is_some() {
            return Err(wrong_cursor());
        }
        Ok((last, page, limit))
    }
}

#[derive(OpenApi)]
#[openapi(paths(create, fetch, path, children, best))]
struct Document;

/// The routes of this file.
pub(crate) fn part() -> Part {
    let routes = Router::new()
        .route("/api/v1/episodes", post(create))
        .route("/api/v1/episodes/{id}", get(fetch))
        .route("/api/v1/episodes/{id}/path", get(path))
        .route("/api/v1/episodes/{id}/children", get(children))
        .route("/api/v1/episodes/{id}/best", get(best));
    Part { open: Router::new(), closed: routes, document: Document::openapi() }
}

/// Add a step to a search, or begin one.
#[utoipa::path(post, path = "/api/v1/episodes", tag = "episodes", operation_id = "create_episode", request_body = CreateEpisode, responses(
    (status = 201, description = "The step", body = Episode),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Json(order): Json<CreateEpisode>,
) -> Result<(StatusCode, Json<Episode>), ApiError> {
    let scope = scope(&caller);
    let snapshot = app.snapshots().find(&scope, &order.snapshot).await?;
    let parent = match &order.parent {
        Some(id) => Some(find(&app, &scope, id).await?),
        None => None,
    };
    let mut record =
        Record::new(snapshot.id, parent.as_ref().map(|parent| parent.id), order.action, order.reward);
    record.visits = order.visits.unwrap_or(1);
    record.data = order.data.map_or(Value::Null, Value::Object);
    if order.insight {
        record.insight = Some(judge(&app, &caller, parent.as_ref(), snapshot).await?);
    }
    let store = app.store.clone();
    let record = blocking(move || {
        store.put_episode(&record, Durability::Synced)?;
        Ok(record)
    });
    let record = record.await?;
    let details = json!({ "episode": record.id.to_string(), "snapshot": record.snapshot.to_string() });
    app.audit.record(Entry::by("episode.created", &caller, &request, details));
    Ok((StatusCode::CREATED, Json(Episode::new(record)?)))
}

/// The insight diff from the parent's snapshot to another.
async fn judge(app: &App, caller: &Caller, parent: Option<&Record>, to: Snapshot) -> Result<Value, ApiError> {
    let Some(parent) = parent else {
        let message = "insight: there is nothing to compare with at the start of a search";
        return Err(ApiError::new(code::INVALID_REQUEST, message).detail("field", "insight"));
    };
    let from = app.snapshots().find(&scope(caller), &parent.snapshot.to_string()).await?;
    let turn = app.turns.comparison(&caller.owner).await;
    with_store(&app.store, move |store| {
        let _turn = turn;
        let (from, to) = (snapshots::open(store, &from)?, snapshots::open(store, &to)?);
        serde_json::to_value(Diff::judged(&from, &to, DIFF_LIMIT)?).map_err(ApiError::internal)
    })
    .await
}

/// Get a step.
#[utoipa::path(get, path = "/api/v1/episodes/{id}", tag = "episodes", operation_id = "get_episode", params(("id" = String, Path)), responses(
    (status = 200, description = "The step", body = Episode),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Episode>, ApiError> {
    Ok(Json(Episode::new(find(&app, &scope(&caller), &id).await?)?))
}

/// Get the steps from the start of a search to this one. Those whose snapshots were removed are left out.
#[utoipa::path(get, path = "/api/v1/episodes/{id}/path", tag = "episodes", operation_id = "get_episode_path", params(("id" = String, Path)), responses(
    (status = 200, description = "The steps", body = EpisodePath),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn path(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<EpisodePath>, ApiError> {
    let seen = related(&app, &scope(&caller), &id, |store, id| Ok(store.episode_path(id)?)).await?;
    Ok(Json(EpisodePath { items: Episode::all(seen)? }))
}

/// List the steps right after this one.
#[utoipa::path(get, path = "/api/v1/episodes/{id}/children", tag = "episodes", operation_id = "list_episode_children",
    params(("id" = String, Path), ChildrenQuery), responses(
    (status = 200, description = "A page", body = EpisodeList),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn children(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<ChildrenQuery>,
) -> Result<Json<EpisodeList>, ApiError> {
    let (last, page, limit) = query.check()?;
    let seen = related(&app, &scope(&caller), &id, |store, id| Ok(store.episode_children(Some(id))?)).await?;
    let total = seen.len();
    // Oldest first, which is the order of ids.
    let before = |one: &Record| last.is_some_and(|last| one.id <= last);
    let mut rest = seen.into_iter().skip_while(before).skip(skipped(page, limit));
    let items: Vec<Record> = rest.by_ref().take(limit as usize).collect();
    let next = items.last().map(|last| last.id).filter(|_| rest.next().is_some());
    Ok(Json(EpisodeList { items: Episode::all(items)?, total, page, limit, next }))
}

/// Get the last step with the highest reward after this one, or this one if none follows.
#[utoipa::path(get, path = "/api/v1/episodes/{id}/best", tag = "episodes", operation_id = "get_best_episode", params(("id" = String, Path)), responses(
    (status = 200, description = "The step", body = Episode),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn best(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Episode>, ApiError> {
    // A whole search may be long.
    let turn = app.turns.comparison(&caller.owner).await;
    let after = move |store: &Store, id: &EpisodeId| {
        let _turn = turn;
        Ok(store.episode_subtree(Some(id))?)
    };
    let seen = related(&app, &scope(&caller), &id, after).await?;
    let best = best_of(seen).ok_or_else(|| no_episode(&id))?;
    Ok(Json(Episode::new(best)?))
}

/// The best of those that nothing follows; more visits, then the newer, break a tie.
fn best_of(episodes: Vec<Record>) -> Option<Record> {
    let parents: HashSet<EpisodeId> = episodes.iter().filter_map(|episode| episode.parent).collect();
    let better = |a: &Record, b: &Record| -> Ordering {
        a.reward.total_cmp(&b.reward).then_with(|| (a.visits, a.id).cmp(&(b.visits, b.id)))
    };
    episodes.into_iter().filter(|episode| !parents.contains(&episode.id)).max_by(better)
}

/// A step that may be seen. Its id must be whole.
async fn find(app: &App, scope: &Scope, text: &str) -> Result<Record, ApiError> {
    let id: EpisodeId = text.parse().map_err(|_| no_episode(text))?;
    let store = app.store.clone();
    let found = blocking(move || Ok(store.episode(&id)?)).await?;
    let found = found.ok_or_else(|| no_episode(text))?;
    let seen = seen(app, scope, vec![found]).await?;
    seen.into_iter().next().ok_or_else(|| no_episode(text))
}

/// Steps around one, as far as they may be seen.
async fn related(
    app: &App,
    scope: &Scope,
    text: &str,
    look: impl FnOnce(&Store, &EpisodeId) -> Result<Vec<Record>, ApiError> + Send + 'static,
) -> Result<Vec<Record>, ApiError> {
    let id = find(app, scope, text).await?.id;
    let found = with_store(&app.store, move |store| look(store, &id)).await?;
    seen(app, scope, found).await
}

/// Those of some steps whose snapshots may be seen.
async fn seen(app: &App, scope: &Scope, episodes: Vec<Record>) -> Result<Vec<Record>, ApiError> {
    let ids: HashSet<SnapshotId> = episodes.iter().map(|episode| episode.snapshot).collect();
    let ids: Vec<SnapshotId> = ids.into_iter().collect();
    let visible = app.snapshots().visible(scope, &ids).await?;
    Ok(episodes.into_iter().filter(|episode| visible.contains(&episode.snapshot)).collect())
}

fn no_episode(id: &str) -> ApiError {
    ApiError::new(code::EPISODE_NOT_FOUND, format!("there is no episode `{id}`")).detail("episodeId", id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_step_is_one_that_nothing_follows() {
        let snapshot = SnapshotId::generate();
        let step = |parent: Option<&Record>, reward, visits| {
            let mut record = Record::new(snapshot, parent.map(|parent| parent.id), "act", reward);
            record.visits = visits;
            record
        };
        let start = step(None, 9.0, 1);
        let (low, high) = (step(Some(&start), 0.1, 9), step(Some(&start), 0.5, 1));
        let often = step(Some(&start), 0.5, 2);
        assert_eq!(best_of(vec![start.clone()]), Some(start.clone()));
        assert_eq!(best_of(vec![start.clone(), low.clone(), high.clone()]), Some(high.clone()));
        assert_eq!(best_of(vec![start, often.clone(), low, high]), Some(often));
        assert_eq!(best_of(Vec::new()), None);
    }
}
