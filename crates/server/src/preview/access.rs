//! Access to a preview: the token of a request, and the key that created it.

use std::net::IpAddr;
use std::time::Duration;

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

/// Interval at which the key of an open stream is checked.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Access to a preview.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) token: PreviewToken,
    /// Key that created the token.
    pub(crate) caller: Caller,
    token_hash: [u8; blake3::OUT_LEN],
}

impl Access {
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
            let Some(caller) = app.cache.find(&app.catalog, key).await? else { continue };
            let token_hash = *blake3::hash(text.as_bytes()).as_bytes();
            return Ok(Some(Self { token, caller, token_hash }));
        }
        Ok(None)
    }

    /// Returns the key of the connections to the program in the sandbox.
    pub(crate) fn pool_key(&self) -> PoolKey {
        PoolKey { target: self.token.target.clone(), token_hash: self.token_hash }
    }

    /// Returns the time until the token expires, in seconds.
    pub(crate) fn seconds_left(&self) -> i64 {
        (self.token.expires_at - now()).max(0) / 1_000
    }

    /// Waits until the token expires or its key is revoked.
    pub(crate) fn ended(&self, app: &App) -> impl Future<Output = ()> + Send + 'static {
        let (app, key_id, expires_at) = (app.clone(), self.token.key_id.clone(), self.token.expires_at);
        async move {
            while let Ok(left @ 1..) = u64::try_from(expires_at - now()) {
                tokio::time::sleep(KEY_CHECK_INTERVAL.min(Duration::from_millis(left))).await;
                // A catalog that does not respond ends nothing.
                let found = app.cache.find(&app.catalog, KeyReference::Id(key_id.clone())).await;
                if let Ok(None) = found {
                    return;
                }
            }
        }
    }
}

/// Creates the error for a request without a valid token. These requests have a rate limit per address.
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
