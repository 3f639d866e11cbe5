//! `/api/v1/me`: the caller, with its limits and usage.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use utoipa::OpenApi;
use workspace_api::access::{Identity, IdentityLimits, OwnerUsage, TokenInfo};
use workspace_api::error::ErrorBody;

use crate::access::Rule;
use crate::app::App;
use crate::auth::rates;
use crate::caller::{Caller, Grant, scope};
use crate::error::ApiError;
use crate::extract::Json;
use crate::keys::role_to_api;
use crate::route_group::RouteGroup;
use crate::time::format_millis;

#[derive(OpenApi)]
#[openapi(paths(me))]
struct Document;

const RULES: &[Rule] = &[Rule::any_token("GET", "/api/v1/me")];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/me", get(me));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Get the caller: its key, owner, limits and usage.
///
/// With a token, the response has the sandbox and the rights of the token, and no usage.
#[utoipa::path(get, path = "/api/v1/me", tag = "keys", operation_id = "me", responses(
    (status = 200, description = "Caller", body = Identity),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn me(State(app): State<App>, caller: Caller) -> Result<Json<Identity>, ApiError> {
    let (usage, token) = match &caller.grant {
        Some(grant) => (None, Some(token_info(&app, &caller, grant).await?)),
        None => (Some(usage(&app, &caller).await?), None),
    };
    Ok(Json(Identity {
        admin: caller.is_admin(),
        limits: limits(&app, &caller),
        role: role_to_api(caller.role),
        key_id: caller.key_id,
        name: caller.name,
        owner: caller.owner,
        usage,
        token,
    }))
}

/// Describes a token. Fails with `SANDBOX_NOT_FOUND` if its sandbox was deleted.
async fn token_info(app: &App, caller: &Caller, grant: &Grant) -> Result<TokenInfo, ApiError> {
    let sandbox_id = app.sandboxes.get(&scope(caller), &grant.sandbox).await?.sandbox.id;
    // Only tickets may have no expiry, and this route does not accept them.
    let expires_at = format_millis(grant.expires_at.unwrap_or_default())?;
    Ok(TokenInfo { sandbox_id, rights: grant.rights.to_vec(), expires_at })
}

async fn usage(app: &App, caller: &Caller) -> Result<OwnerUsage, ApiError> {
    let owner = caller.owner.as_str();
    // The first number counts the sandboxes of all owners on this server, the second those of the owner on all servers.
    // Neither has sandboxes that are paused to disk.
    let (_, sandboxes) =
        app.catalog.sandboxes().count_for_quota(&app.sandboxes.settings().server, owner).await?;
    let episodes = app.catalog.episodes().usage(owner).await?;
    Ok(OwnerUsage {
        sandboxes,
        snapshots: app.catalog.snapshots().count(owner).await?,
        // Content that an agent shares with files which it may not see does not count, so it would reveal them.
        snapshot_bytes: match caller.binding {
            Some(_) => None,
            None => Some(app.catalog.snapshots().bytes(owner).await?),
        },
        episodes: episodes.count,
        episode_bytes: episodes.bytes,
    })
}

fn limits(app: &App, caller: &Caller) -> IdentityLimits {
    let rates = app.limiter.rates_if_enabled(rates(caller, app));
    let rated = IdentityLimits {
        create_per_minute: rates.create.map(u64::from),
        run_per_minute: rates.run.map(u64::from),
        fork_per_minute: rates.fork.map(u64::from),
        files_per_minute: rates.files.map(u64::from),
        other_per_minute: rates.other.map(u64::from),
        ..IdentityLimits::default()
    };
    if caller.is_admin() {
        return rated;
    }
    let settings = &app.settings;
    let max_sandboxes = caller.limits.max_sandboxes.unwrap_or(settings.max_sandboxes_per_owner);
    IdentityLimits {
        max_sandboxes: Some(u64::from(max_sandboxes)),
        max_snapshots: settings.max_snapshots_per_owner.limit(),
        max_snapshot_bytes: Some(settings.max_snapshot_bytes_per_owner.0),
        max_episodes: settings.max_episodes_per_owner.limit(),
        max_episode_bytes: Some(settings.max_episode_bytes_per_owner.0),
        ..rated
    }
}
