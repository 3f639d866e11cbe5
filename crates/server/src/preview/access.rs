//! Access to a preview: the token of a request, and the key that created it.

use std::net::IpAddr;

use serde_json::json;
use workspace_api::error_codes;
use workspace_catalog::now;

use super::pool::PoolKey;
use super::target::Target;
use super::token::PreviewToken;
use crate::app::App;
use crate::audit::{Entry, Level};
use crate::caller::Caller;
use crate::caller_cache::KeyReference;
use crate::error::ApiError;
use crate::rate::Class;
use crate::stream_access::StreamAccess;

/// Minimum time in milliseconds that a request has to finish, also if its token expires meanwhile.
const FINISH_TIME: i64 = 10_000;

/// Access to a preview by a token.
#[derive(Debug, Clone)]
pub(crate) struct PreviewAccess {
    pub(crate) token: PreviewToken,
    /// Key that created the token.
    pub(crate) caller: Caller,
    token_hash: [u8; blake3::OUT_LEN],
}

impl PreviewAccess {
    /// Verifies tokens, and returns the access of the first valid one. `None` if none is valid.
    pub(crate) async fn verify(
        app: &App,
        target: &Target,
        candidates: &[&str],
    ) -> Result<Option<Self>, ApiError> {
        let now = now();
        for text in candidates {
            let Some(token) = app.previews.tokens.verify(text, target, now) else { continue };
            let key = KeyReference::Id(token.key_id.clone());
            let Some(caller) = app.caller_cache.find(&app.catalog, key).await? else { continue };
            let token_hash = *blake3::hash(text.as_bytes()).as_bytes();
            return Ok(Some(Self { token, caller, token_hash }));
        }
        Ok(None)
    }

    /// Returns the key under which connections to the program are pooled.
    pub(crate) fn pool_key(&self) -> PoolKey {
        PoolKey { target: self.token.target.clone(), token_hash: self.token_hash }
    }

    /// Returns the time until the token expires, in seconds.
    pub(crate) fn seconds_left(&self) -> i64 {
        (self.token.expires_at - now()).max(0) / 1_000
    }

    /// Waits until a request that begins now must end: its token has expired, or its key was revoked. It has
    /// [`FINISH_TIME`] in any case.
    pub(crate) fn ended(&self, app: &App) -> impl Future<Output = ()> + Send + 'static {
        self.ended_at(app, self.token.expires_at.max(now() + FINISH_TIME))
    }

    /// Waits until a WebSocket must be closed: its token has expired, or its key was revoked.
    pub(crate) fn tunnel_ended(&self, app: &App) -> impl Future<Output = ()> + Send + 'static {
        self.ended_at(app, self.token.expires_at)
    }

    fn ended_at(&self, app: &App, end: i64) -> impl Future<Output = ()> + Send + 'static {
        let access = StreamAccess::new(app, &self.token.key_id, Some(end));
        async move {
            access.ended().await;
        }
    }
}

/// Creates the error for a request without a valid token; `was_sent` is true if it has an invalid one. These requests
/// have a rate limit per address.
pub(crate) fn unauthorized(app: &App, address: Option<IpAddr>, was_sent: bool) -> ApiError {
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    let taken = app.limiter.take(&format!("address {address}"), Class::Other, app.limiter.rates());
    if let Some(limited) = taken.filter(|decision| decision.retry_after.is_some()) {
        let error = ApiError::new(error_codes::RATE_LIMITED, "too many requests without a valid token");
        return limited.headers().into_iter().fold(error, |error, (name, value)| error.header(name, value));
    }
    if was_sent {
        let details = json!({ "reason": "the preview token is not valid", "address": address });
        app.audit.record(Entry {
            level: Level::Warn,
            event: "auth.failed",
            details: details.as_object().cloned().unwrap_or_default(),
            ..Entry::default()
        });
    }
    let reason = if was_sent { "the token is not valid here or has expired" } else { "no token was sent" };
    let message = format!(
        "{reason}: open the `url` that `POST /api/v1/sandboxes/{{id}}/ports/{{port}}` returns, or send its `token` \
         in the header `X-Workspace-Preview-Token`"
    );
    ApiError::new(error_codes::UNAUTHORIZED, message)
}
