//! Shared state of previews.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::pool::Pool;
use super::token::PreviewTokens;
use crate::per_owner::PerOwner;
use crate::settings::Settings;
use crate::signing_key::SigningSecret;

/// Domain of previews if the API listens on a loopback address. Browsers resolve all names below it to that address.
const LOOPBACK_DOMAIN: &str = "localhost";
/// Maximum number of requests in progress, WebSockets included, to one sandbox and of one owner.
const REQUESTS_PER_SANDBOX_MAX: usize = 256;
const REQUESTS_PER_OWNER_MAX: usize = 512;
/// Maximum number of WebSockets to one sandbox.
const TUNNELS_PER_SANDBOX_MAX: usize = 128;

/// Shared state of previews.
#[derive(Debug)]
pub(crate) struct Previews {
    domain: Option<String>,
    pub(crate) tokens: PreviewTokens,
    pub(crate) pool: Arc<Pool>,
    sandbox_requests: PerOwner,
    owner_requests: PerOwner,
    tunnels: PerOwner,
}

/// Permit of a request in progress.
#[derive(Debug)]
pub(crate) struct PreviewPermit {
    _sandbox: OwnedSemaphorePermit,
    _owner: OwnedSemaphorePermit,
    _tunnel: Option<OwnedSemaphorePermit>,
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Plain,
    WebSocket,
}

/// Limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{limit} {what} are in progress; close some")]
pub(crate) struct LimitReached {
    pub(crate) limit: usize,
    what: &'static str,
}

impl Previews {
    pub(crate) fn new(settings: &Settings, secret: &SigningSecret) -> Self {
        let set = settings.preview_domain.as_ref().map(|domain| domain.0.to_ascii_lowercase());
        let default = || settings.api_host.is_loopback().then(|| LOOPBACK_DOMAIN.to_owned());
        Self {
            domain: set.or_else(default),
            tokens: PreviewTokens::new(secret),
            pool: Arc::default(),
            sandbox_requests: PerOwner::new(REQUESTS_PER_SANDBOX_MAX),
            owner_requests: PerOwner::new(REQUESTS_PER_OWNER_MAX),
            tunnels: PerOwner::new(TUNNELS_PER_SANDBOX_MAX),
        }
    }

    /// Returns the domain of the host form in lower case; `None` if there is only the path form.
    pub(crate) fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// Counts a request as in progress until the permit is dropped.
    pub(crate) fn begin(
        &self,
        sandbox: &str,
        owner: &str,
        kind: RequestKind,
    ) -> Result<PreviewPermit, LimitReached> {
        let tunnel = match kind {
            RequestKind::Plain => None,
            RequestKind::WebSocket => Some(acquire(&self.tunnels, sandbox, "WebSockets to this sandbox")?),
        };
        Ok(PreviewPermit {
            _sandbox: acquire(&self.sandbox_requests, sandbox, "requests to previews of this sandbox")?,
            _owner: acquire(&self.owner_requests, owner, "requests to previews of this owner")?,
            _tunnel: tunnel,
        })
    }
}

fn acquire(permits: &PerOwner, name: &str, what: &'static str) -> Result<OwnedSemaphorePermit, LimitReached> {
    let permit = permits.semaphore(name).try_acquire_owned();
    permit.map_err(|_| LimitReached { limit: permits.permits(), what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{HostEnvironment, SettingsSource};

    fn previews(variables: &[(&str, &str)]) -> Previews {
        let always = [("DATA_DIR", "/data"), ("AGENT_PROGRAM", "/agent"), ("ALLOW_INSECURE", "on")];
        let variables = always.iter().chain(variables).map(|&(name, value)| (name.into(), value.into()));
        let source = SettingsSource::new(HostEnvironment::default(), variables, None);
        Previews::new(&Settings::from_source(&source).unwrap(), &SigningSecret::for_test(1))
    }

    #[test]
    fn the_default_domain_is_localhost_on_loopback_only() {
        assert_eq!(previews(&[]).domain(), Some("localhost"));
        assert_eq!(previews(&[("API_HOST", "::1")]).domain(), Some("localhost"));
        assert_eq!(previews(&[("API_HOST", "0.0.0.0")]).domain(), None);
        let set = [("API_HOST", "0.0.0.0"), ("PREVIEW_DOMAIN", "Preview.Example.org")];
        assert_eq!(previews(&set).domain(), Some("preview.example.org"));
    }

    #[test]
    fn requests_are_limited_per_sandbox_and_per_owner() {
        let previews = previews(&[]);
        let plain = |sandbox: &str| previews.begin(sandbox, "alice", RequestKind::Plain);
        let mut first: Vec<_> = (0..REQUESTS_PER_SANDBOX_MAX).map(|_| plain("sbx-1").unwrap()).collect();
        assert_eq!(plain("sbx-1").unwrap_err().limit, REQUESTS_PER_SANDBOX_MAX);
        let second: Vec<_> = (0..REQUESTS_PER_SANDBOX_MAX).map(|_| plain("sbx-2").unwrap()).collect();
        assert_eq!(plain("sbx-3").unwrap_err().limit, REQUESTS_PER_OWNER_MAX);
        assert!(previews.begin("sbx-3", "bob", RequestKind::Plain).is_ok());
        first.pop();
        drop(plain("sbx-3").unwrap());
        drop((first, second));
        let socket = || previews.begin("sbx-1", "alice", RequestKind::WebSocket);
        let sockets: Vec<_> = (0..TUNNELS_PER_SANDBOX_MAX).map(|_| socket().unwrap()).collect();
        assert_eq!(socket().unwrap_err().limit, TUNNELS_PER_SANDBOX_MAX);
        assert!(plain("sbx-1").is_ok(), "pages still load");
        drop(sockets);
        assert!(socket().is_ok());
    }
}
