//! `/api/v1/keys`: API keys, for admins.

mod binding;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use serde_json::json;
use utoipa::OpenApi;
use uuid::Uuid;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::keys::{CreateKey, Key, KeyLimits, KeyList, KeyRole, NewKey};
use workspace_catalog::{ApiKey, NewApiKey, Revocation, Role};

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{Json, Path};
use crate::first_key::random_key;
use crate::key_hash;
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::time::format_millis;

const NAME_MAX: usize = 100;

fn check_limits(limits: &KeyLimits) -> Result<(), ApiError> {
    let rates = [
        limits.create_per_minute,
        limits.run_per_minute,
        limits.fork_per_minute,
        limits.files_per_minute,
        limits.other_per_minute,
    ];
    if rates.contains(&Some(0)) {
        return Err(ApiError::new(error_codes::INVALID_REQUEST, "a rate must be at least 1"));
    }
    Ok(())
}

fn role_from_api(role: KeyRole) -> Role {
    match role {
        KeyRole::Admin => Role::Admin,
        KeyRole::User => Role::User,
        KeyRole::ReadOnly => Role::ReadOnly,
        KeyRole::Agent => Role::Agent,
        KeyRole::Reviewer => Role::Reviewer,
    }
}

pub(crate) fn role_to_api(role: Role) -> KeyRole {
    match role {
        Role::Admin => KeyRole::Admin,
        Role::User => KeyRole::User,
        Role::ReadOnly => KeyRole::ReadOnly,
        Role::Agent => KeyRole::Agent,
        Role::Reviewer => KeyRole::Reviewer,
    }
}

#[derive(OpenApi)]
#[openapi(paths(create, list, revoke))]
struct Document;

const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/keys"),
    Rule::only_keys("POST", "/api/v1/keys"),
    Rule::only_keys("DELETE", "/api/v1/keys/{id}"),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/keys", get(list).post(create))
        .route("/api/v1/keys/{id}", delete(revoke));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Create a key.
///
/// Admins only. The response contains the secret, which cannot be read again. A key for an agent is bound to projects and
/// agents: it can act for no other, and sees of the projects only what their access policies show these agents.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys", operation_id = "create_key", request_body = CreateKey, responses(
    (status = 201, description = "New key with its secret", body = NewKey),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Json(body): Json<CreateKey>,
) -> Result<(StatusCode, Json<NewKey>), ApiError> {
    caller.require_admin()?;
    check_name("name", &body.name)?;
    check_name("owner", &body.owner)?;
    check_limits(&body.limits)?;
    let binding = binding::of_request(&app, &body).await?;
    let owner = match &binding {
        // Such a key has an owner of its own, below that of the request.
        Some(binding) => binding::owner_of_agents(&body.owner, binding),
        None => body.owner,
    };
    let key = random_key().map_err(ApiError::internal)?;
    let id = format!("key-{}", Uuid::now_v7().simple());
    let row = NewApiKey {
        id: id.clone(),
        name: body.name,
        owner,
        role: role_from_api(body.role),
        hash: key_hash::hash(&key),
        limits: serde_json::to_value(body.limits).map_err(ApiError::internal)?,
        binding,
    };
    app.catalog.api_keys().insert(&row).await?;
    let details = json!({"key_id": id, "owner": row.owner, "role": row.role.as_str()});
    app.audit.record(Entry::for_caller("key.created", &caller, &request, details));
    Ok((StatusCode::CREATED, Json(NewKey { id, key })))
}

/// List all keys.
///
/// Admins only.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", operation_id = "list_keys", responses(
    (status = 200, description = "Keys", body = KeyList),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<KeyList>, ApiError> {
    caller.require_admin()?;
    let any_owner = None;
    let keys = app.catalog.api_keys().list(any_owner).await?;
    Ok(Json(KeyList { items: keys.into_iter().map(key_to_api).collect::<Result<_, _>>()? }))
}

/// Revoke a key.
///
/// Admins only. The server rejects the key and its tokens immediately; other servers of the same catalog within 5 seconds.
#[utoipa::path(delete, path = "/api/v1/keys/{id}", tag = "keys", operation_id = "revoke_key", params(("id" = String, Path, description = "Id of the key")), responses(
    (status = 204, description = "Revoked"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    caller.require_admin()?;
    let missing = || {
        ApiError::new(error_codes::KEY_NOT_FOUND, format!("there is no key `{id}`"))
            .detail("keyId", id.as_str())
    };
    match app.catalog.api_keys().revoke(&id).await? {
        Revocation::Revoked => app.caller_cache.remove(&id),
        Revocation::NotFound => return Err(missing()),
        Revocation::LastAdmin => {
            return Err(ApiError::new(
                error_codes::LAST_ADMIN_KEY,
                "this is the last admin key: create another one first",
            ));
        }
    }
    app.audit.record(Entry::for_caller("key.revoked", &caller, &request, json!({"key_id": id})));
    Ok(StatusCode::NO_CONTENT)
}

fn check_name(field: &str, text: &str) -> Result<(), ApiError> {
    let fits =
        !text.trim().is_empty() && text.chars().count() <= NAME_MAX && !text.chars().any(char::is_control);
    let message =
        || format!("`{field}` must have 1 to {NAME_MAX} characters, none of them control characters");
    fits.then_some(())
        .ok_or_else(|| ApiError::new(error_codes::INVALID_REQUEST, message()).detail("field", field))
}

fn key_to_api(key: ApiKey) -> Result<Key, ApiError> {
    let limits = serde_json::from_value(key.limits).map_err(ApiError::internal)?;
    let binding = key.binding.unwrap_or_default();
    Ok(Key {
        id: key.id,
        name: key.name,
        owner: key.owner,
        role: role_to_api(key.role),
        projects: binding.projects,
        agents: binding.agents,
        limits,
        created_at: format_millis(key.created_at)?,
        revoked_at: key.revoked_at.map(format_millis).transpose()?,
    })
}
