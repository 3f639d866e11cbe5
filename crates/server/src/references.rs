//! `/api/v1/references`: names for snapshots, by owner. `reference_names.rs` maps them to names in the store.
//!
//! A reference and its target are changed under two locks of this server: that of the owner's references, which makes the
//! maximum number exact, and that of the snapshot, which `DELETE /api/v1/snapshots/{id}` takes, too. Without the latter, a
//! snapshot could lose its owner after a reference was set to it. The command line changes references without the locks,
//! so every change is also a compare-and-set in the store.

mod precondition;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::references::{ListReferencesQuery, Reference, ReferenceList, SetReference};
use workspace_api::snapshots::PageQuery;
use workspace_state::{Durability, Expect, SnapshotId, Store, StoreError, check_reference_name};

use precondition::{Precondition, entity_tag};

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::{ApiError, invalid_cursor};
use crate::extract::{Json, Path, Query};
use crate::reference_names::ReferenceNames;
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::snapshots::{check_page, page_offset};
use crate::store::{blocking, snapshot_not_found, with_store};

/// Maximum number of attempts to change a reference that the command line changes at the same time.
const ATTEMPTS_MAX: usize = 10;

#[derive(OpenApi)]
#[openapi(paths(list, fetch, set, remove))]
struct Document;

const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/references"),
    Rule::only_keys("GET", "/api/v1/references/{*name}"),
    Rule::only_keys("PUT", "/api/v1/references/{*name}"),
    Rule::only_keys("DELETE", "/api/v1/references/{*name}"),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/references", get(list))
        .route("/api/v1/references/{*name}", get(fetch).put(set).delete(remove));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// List references.
#[utoipa::path(get, path = "/api/v1/references", tag = "references", operation_id = "list_references", params(ListReferencesQuery), responses(
    (status = 200, description = "Page of references", body = ReferenceList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListReferencesQuery>,
) -> Result<Json<ReferenceList>, ApiError> {
    let (page, limit) = check_page(&PageQuery { page: query.page, limit: query.limit })?;
    let is_invalid = |cursor: &String| query.page.is_some() || check_reference_name(cursor).is_err();
    if query.cursor.as_ref().is_some_and(is_invalid) {
        return Err(invalid_cursor());
    }
    let names = ReferenceNames::of(&scope(&caller));
    let permit = app.work_limits.read(&caller.owner).await;
    let found = with_store(&app.store, move |store| {
        let _permit = permit;
        Ok(names.list(store, query.prefix.as_deref().unwrap_or_default())?)
    });
    let found = found.await?;
    let total = found.len();
    let skip = match &query.cursor {
        Some(cursor) => found.partition_point(|(name, _)| name <= cursor),
        None => page_offset(page, limit),
    };
    let rest = found.into_iter().skip(skip);
    let items: Vec<Reference> = rest.take(limit as usize).map(reference_to_api).collect();
    let has_more = skip.saturating_add(items.len()) < total;
    let next = items.last().filter(|_| has_more).map(|last| last.name.clone());
    Ok(Json(ReferenceList { items, total, page, limit, next }))
}

/// Get a reference.
#[utoipa::path(get, path = "/api/v1/references/{name}", tag = "references", operation_id = "get_reference",
    params(
        ("name" = String, Path, description = "Name of the reference"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of the value that you have"),
    ),
    responses(
        (status = 200, description = "Reference; `ETag` is the entity tag of its current value", body = Reference),
        (status = 304, description = "The value has not changed"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
async fn fetch(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let precondition = Precondition::parse(&headers)?;
    let store_name = ReferenceNames::of(&scope(&caller)).in_store(&name);
    let store = app.store.clone();
    let target = blocking(move || Ok(store.reference(&store_name)?)).await?;
    let target = target.ok_or_else(|| not_found(&name))?;
    if precondition.is_known(Some(&target)) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, entity_tag(&target)?)]).into_response());
    }
    respond(StatusCode::OK, name, target)
}

/// Create a reference, or move it to another snapshot.
///
/// With `If-Match`, the reference is moved only if its current value has that `ETag`. With `If-None-Match: *`, it is only
/// created. Otherwise the request fails with `PRECONDITION_FAILED`. A snapshot with a reference cannot be deleted.
#[utoipa::path(put, path = "/api/v1/references/{name}", tag = "references", operation_id = "set_reference",
    params(
        ("name" = String, Path, description = "Name of the reference: 1 to 128 of `A-Z a-z 0-9 . _ - /` without empty parts"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the value that the reference must have; `*` for any value"),
        ("If-None-Match" = Option<String>, Header, description = "`*` if the reference must not exist"),
    ),
    request_body = SetReference, responses(
    (status = 200, description = "Moved reference; `ETag` is the entity tag of its value", body = Reference),
    (status = 201, description = "New reference; `ETag` is the entity tag of its value", body = Reference),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn set(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<SetReference>,
) -> Result<Response, ApiError> {
    let scope = scope(&caller);
    let change =
        Change { names: ReferenceNames::of(&scope), name, precondition: Precondition::parse(&headers)? };
    change.names.check(&change.name)?;
    let to: SnapshotId = body.snapshot.parse().map_err(|_| snapshot_not_found(&body.snapshot))?;
    let locks = (
        app.reference_locks.acquire(&change.lock_key()).await,
        app.snapshot_locks.acquire(&to.to_string()).await,
    );
    app.snapshots().find_own(&scope, &body.snapshot).await?;
    let max = app.settings.max_references_per_owner.0;
    // 0 means no limit.
    let max = (!caller.is_admin() && max > 0).then_some(max);
    let store = app.store.clone();
    let changed = blocking(move || {
        // The work continues if the client disconnects.
        let _locks = locks;
        let previous = change.set(&store, to, max)?;
        Ok((change.name, previous))
    });
    let (name, previous) = changed.await?;
    let details = json!({ "reference": name, "snapshot": to.to_string(), "previous": previous.map(|id| id.to_string()) });
    app.audit.record(Entry::for_caller("reference.set", &caller, &request, details));
    respond(if previous.is_some() { StatusCode::OK } else { StatusCode::CREATED }, name, to)
}

/// Delete a reference.
///
/// The snapshot stays.
#[utoipa::path(delete, path = "/api/v1/references/{name}", tag = "references", operation_id = "delete_reference",
    params(
        ("name" = String, Path, description = "Name of the reference"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the value that the reference must have"),
    ),
    responses(
        (status = 204, description = "The reference was deleted"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let names = ReferenceNames::of(&scope(&caller));
    let change = Change { names, name, precondition: Precondition::parse(&headers)? };
    let lock = app.reference_locks.acquire(&change.lock_key()).await;
    let store = app.store.clone();
    let removed = blocking(move || {
        let _lock = lock;
        let target = change.remove(&store)?;
        Ok((change.name, target))
    });
    let (name, target) = removed.await?;
    let details = json!({ "reference": name, "snapshot": target.to_string() });
    app.audit.record(Entry::for_caller("reference.deleted", &caller, &request, details));
    Ok(StatusCode::NO_CONTENT)
}

/// Change of a reference. Its methods block.
struct Change {
    names: ReferenceNames,
    name: String,
    precondition: Precondition,
}

impl Change {
    fn lock_key(&self) -> String {
        self.names.lock_key(&self.name)
    }

    /// Points the reference to a snapshot. Returns the previous target; `None` if the reference is new, which fails if
    /// the owner already has `max` references.
    fn set(&self, store: &Store, to: SnapshotId, max: Option<u32>) -> Result<Option<SnapshotId>, ApiError> {
        let store_name = self.names.in_store(&self.name);
        for _ in 0..ATTEMPTS_MAX {
            let current = store.reference(&store_name)?;
            self.precondition.check(&self.name, current.as_ref())?;
            if current.is_none() {
                self.check_count(store, max)?;
            }
            let expect = current.map_or(Expect::Absent, Expect::At);
            match store.set_reference(&store_name, expect, to, Durability::Synced) {
                Err(StoreError::ReferenceMoved { .. }) => {}
                result => return Ok(result.map(|()| current)?),
            }
        }
        Err(self.keeps_moving())
    }

    /// Removes the reference. Returns its target.
    fn remove(&self, store: &Store) -> Result<SnapshotId, ApiError> {
        let store_name = self.names.in_store(&self.name);
        for _ in 0..ATTEMPTS_MAX {
            let current = store.reference(&store_name)?.ok_or_else(|| not_found(&self.name))?;
            self.precondition.check(&self.name, Some(&current))?;
            match store.remove_reference(&store_name, Expect::At(current)) {
                Err(StoreError::ReferenceMoved { .. }) => {}
                result => return Ok(result.map(|()| current)?),
            }
        }
        Err(self.keeps_moving())
    }

    fn check_count(&self, store: &Store, max: Option<u32>) -> Result<(), ApiError> {
        let Some(max) = max else { return Ok(()) };
        if self.names.list(store, "")?.len() < max as usize {
            return Ok(());
        }
        let message = format!(
            "an owner may have {max} references at most; delete some, or raise MAX_REFERENCES_PER_OWNER"
        );
        let error = ApiError::new(error_codes::REFERENCE_LIMIT_EXCEEDED, message);
        Err(error.detail("limit", max).detail("setting", "MAX_REFERENCES_PER_OWNER"))
    }

    /// Creates the error for a reference that other processes changed before each attempt.
    fn keeps_moving(&self) -> ApiError {
        let message = format!("other processes keep changing the reference `{}`; try again", self.name);
        ApiError::new(error_codes::PRECONDITION_FAILED, message).detail("reference", self.name.as_str())
    }
}

fn reference_to_api((name, target): (String, SnapshotId)) -> Reference {
    Reference { name, snapshot: target.to_string() }
}

fn respond(status: StatusCode, name: String, target: SnapshotId) -> Result<Response, ApiError> {
    let tag = entity_tag(&target)?;
    Ok((status, [(header::ETAG, tag)], Json(reference_to_api((name, target)))).into_response())
}

fn not_found(name: &str) -> ApiError {
    ApiError::new(error_codes::REFERENCE_NOT_FOUND, format!("there is no reference `{name}`"))
        .detail("reference", name)
}
