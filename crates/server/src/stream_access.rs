//! End of the access to streams and WebSockets that are open for a long time.

use std::time::Duration;

use tokio::time::sleep;
use workspace_catalog::now;

use crate::app::App;
use crate::caller::Caller;
use crate::caller_cache::KeyReference;

/// Interval at which the key of an open stream is checked. A key that this server revokes is noticed at once; the
/// interval is for keys that other servers of the same catalog revoke.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// Reasons for clients.
const EXPIRED: &str = "the token has expired";
const REVOKED: &str = "the key was revoked";

/// Access to an open stream or WebSocket.
#[derive(Debug, Clone)]
pub(crate) struct StreamAccess {
    app: App,
    key_id: String,
    /// Time at which the access ends, in milliseconds since 1970; `None` for a key.
    expires_at: Option<i64>,
}

impl StreamAccess {
    pub(crate) fn new(app: &App, key_id: &str, expires_at: Option<i64>) -> Self {
        Self { app: app.clone(), key_id: key_id.to_owned(), expires_at }
    }

    /// Returns the access of a caller by its key, token or ticket.
    pub(crate) fn of_caller(app: &App, caller: &Caller) -> Self {
        Self::new(app, &caller.key_id, caller.grant.as_ref().and_then(|grant| grant.expires_at))
    }

    /// Waits until the access ends, and returns the reason for the client: the token has expired, or the key was
    /// revoked.
    pub(crate) async fn ended(&self) -> &'static str {
        let mut revocations = self.app.caller_cache.revocations();
        loop {
            let left = self.expires_at.map(|end| u64::try_from(end.saturating_sub(now())).unwrap_or(0));
            if left == Some(0) {
                return EXPIRED;
            }
            let left = left.map_or(KEY_CHECK_INTERVAL, Duration::from_millis);
            tokio::select! {
                () = sleep(left.min(KEY_CHECK_INTERVAL)) => {}
                // The sender lives as long as the app.
                _ = revocations.changed() => {}
            }
            let key = KeyReference::Id(self.key_id.clone());
            // If the catalog does not respond, the access continues.
            if let Ok(None) = self.app.caller_cache.find(&self.app.catalog, key).await {
                return REVOKED;
            }
        }
    }
}
