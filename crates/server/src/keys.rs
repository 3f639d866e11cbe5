//! `/api/v1/keys`: the keys of a deployment, for admins.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{OpenApi, ToSchema};
use uuid::Uuid;
use workspace_catalog::{ApiKey, NewApiKey, Role};

use crate::app::{App, Part};
use crate::audit::Entry;
use crate::auth::{self, Caller};
use crate::code;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Json, Path};
use crate::first_key::random_key;
use crate::rate::Rates;
use crate::request::RequestId;
use crate::time::time;

const NAME_MAX: usize = 100;

/// What the holder of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyRole {
    /// Everything, with what belongs to anyone.
    Admin,
    /// Everything with what is their own.
    User,
    /// Look at what is their own.
    ReadOnly,
}

impl From<KeyRole> for Role {
    fn from(role: KeyRole) -> Self {
        match role {
            KeyRole::Admin => Self::Admin,
            KeyRole::User => Self::User,
            KeyRole::ReadOnly => Self::ReadOnly,
        }
    }
}

impl From<Role> for KeyRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Admin => Self::Admin,
            Role::User => Self::User,
            Role::ReadOnly => Self::ReadOnly,
        }
    }
}

/// What the holder of a key may use, where it differs from the server's settings. Admin keys have no rates but those
/// given here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyLimits {
    /// Sandboxes of the key's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_sandboxes: Option<u32>,
    /// Sandboxes made a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub create_per_minute: Option<u32>,
    /// Commands run a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub run_per_minute: Option<u32>,
    /// Times that sandboxes are forked a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub fork_per_minute: Option<u32>,
    /// Other requests a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, value_type = Option<u64>)]
    pub other_per_minute: Option<u32>,
}

impl KeyLimits {
    /// The rates of a key with these limits, where `usual` holds for keys of its role.
    pub fn rates(&self, usual: Rates) -> Rates {
        Rates {
            create: self.create_per_minute.or(usual.create),
            run: self.run_per_minute.or(usual.run),
            fork: self.fork_per_minute.or(usual.fork),
            other: self.other_per_minute.or(usual.other),
        }
    }

    fn check(&self) -> Result<(), ApiError> {
        let rates =
            [self.create_per_minute, self.run_per_minute, self.fork_per_minute, self.other_per_minute];
        if rates.contains(&Some(0)) {
            return Err(ApiError::new(code::INVALID_REQUEST, "a rate must be at least 1"));
        }
        Ok(())
    }
}

/// A key to be made.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateKey {
    /// What people call it.
    #[schema(max_length = 100, min_length = 1)]
    pub name: String,
    /// Whose sandboxes it gives access to.
    #[schema(max_length = 100, min_length = 1)]
    pub owner: String,
    /// What its holder may do.
    pub role: KeyRole,
    /// What its holder may use.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// A key, without the key itself.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Names it, for instance to revoke it.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Whose sandboxes it gives access to.
    pub owner: String,
    /// What its holder may do.
    pub role: KeyRole,
    /// What its holder may use.
    pub limits: KeyLimits,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it was revoked.
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}

/// A key that was just made, with the key itself. It is shown this once.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedKey {
    /// Names it.
    pub id: String,
    /// The key.
    pub key: String,
}

/// All keys.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct KeyList {
    /// Oldest first, the revoked ones too.
    pub items: Vec<Key>,
}

#[derive(OpenApi)]
#[openapi(paths(create, list, revoke))]
struct Document;

/// The routes of this file.
pub(crate) fn part() -> Part {
    let routes = Router::new()
        .route("/api/v1/keys", get(list).post(create))
        .route("/api/v1/keys/{id}", delete(revoke));
    Part { open: Router::new(), closed: routes, document: Document::openapi() }
}

/// Make a key. Admins only; the key is shown this once.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys", operation_id = "create_key", request_body = CreateKey, responses(
    (status = 201, description = "The key", body = CreatedKey),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Json(order): Json<CreateKey>,
) -> Result<(StatusCode, Json<CreatedKey>), ApiError> {
    caller.require_admin()?;
    check_name("name", &order.name)?;
    check_name("owner", &order.owner)?;
    order.limits.check()?;
    let key = random_key().map_err(ApiError::internal)?;
    let id = format!("key-{}", Uuid::now_v7().simple());
    let row = NewApiKey {
        id: id.clone(),
        name: order.name,
        owner: order.owner,
        role: order.role.into(),
        hash: auth::hash(&key),
        limits: serde_json::to_value(order.limits).map_err(ApiError::internal)?,
    };
    app.catalog.api_keys().insert(&row).await?;
    let details = json!({"key_id": id, "owner": row.owner, "role": row.role.as_str()});
    app.audit.record(Entry::by("key.created", &caller, &request, details));
    Ok((StatusCode::CREATED, Json(CreatedKey { id, key })))
}

/// List all keys. Admins only.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", operation_id = "list_keys", responses(
    (status = 200, description = "The keys", body = KeyList),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<KeyList>, ApiError> {
    caller.require_admin()?;
    let keys = app.catalog.api_keys().list(None).await?;
    Ok(Json(KeyList { items: keys.into_iter().map(shown).collect::<Result<_, _>>()? }))
}

/// Revoke a key. Admins only; it takes effect at once.
#[utoipa::path(delete, path = "/api/v1/keys/{id}", tag = "keys", operation_id = "revoke_key", params(("id" = String, Path, description = "The key's id")), responses(
    (status = 204, description = "It is revoked"),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    caller.require_admin()?;
    let missing =
        || ApiError::new(code::KEY_NOT_FOUND, format!("there is no key `{id}`")).detail("keyId", id.as_str());
    let keys = app.catalog.api_keys().list(None).await?;
    let lives = |key: &&ApiKey| key.revoked_at.is_none();
    let key = keys.iter().filter(lives).find(|key| key.id == id).ok_or_else(missing)?;
    let admins = keys.iter().filter(lives).filter(|key| key.role == Role::Admin).count();
    if key.role == Role::Admin && admins == 1 {
        return Err(ApiError::new(
            code::LAST_ADMIN_KEY,
            "this is the last admin key: make another one first",
        ));
    }
    let revoked = app.catalog.api_keys().revoke(&id).await?;
    app.cache.forget(&id);
    if !revoked {
        return Err(missing());
    }
    app.audit.record(Entry::by("key.revoked", &caller, &request, json!({"key_id": id})));
    Ok(StatusCode::NO_CONTENT)
}

fn check_name(field: &str, text: &str) -> Result<(), ApiError> {
    let fits =
        !text.trim().is_empty() && text.chars().count() <= NAME_MAX && !text.chars().any(char::is_control);
    let message =
        || format!("`{field}` must have 1 to {NAME_MAX} characters, none of them control characters");
    fits.then_some(()).ok_or_else(|| ApiError::new(code::INVALID_REQUEST, message()).detail("field", field))
}

fn shown(key: ApiKey) -> Result<Key, ApiError> {
    let limits = serde_json::from_value(key.limits).map_err(ApiError::internal)?;
    Ok(Key {
        id: key.id,
        name: key.name,
        owner: key.owner,
        role: key.role.into(),
        limits,
        created_at: time(key.created_at)?,
        revoked_at: key.revoked_at.map(time).transpose()?,
    })
}
