//! Shared state of previews.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::pool::Pool;
use super::token::PreviewTokens;
use crate::keyed_semaphores::KeyedSemaphores;
use crate::settings::Settings;
use crate::signing_key::SigningSecret;

/// Domain of previews if the API listens on a loopback address. Browsers resolve all names below it to that address.
const LOOPBACK_DOMAIN: &str = "localhost";
/// Maximum number of requests in progress, without WebSockets, to one sandbox and of one owner.
const REQUESTS_PER_SANDBOX_MAX: usize = 256;
const REQUESTS_PER_OWNER_MAX: usize = 512;
/// Maximum number of WebSockets to one sandbox and of one owner. Together with [`REQUESTS_PER_SANDBOX_MAX`], they are
/// fewer than the connections to ports that a sandbox can have (1,536).
const SOCKETS_PER_SANDBOX_MAX: usize = 1_000;
const SOCKETS_PER_OWNER_MAX: usize = 1_500;

/// Shared state of previews.
#[derive(Debug)]
pub(crate) struct Previews {
    /// Domain of the host form; `None` if there is only the path form.
    domain: Option<String>,
    pub(crate) tokens: PreviewTokens,
    pub(crate) pool: Arc<Pool>,
    requests: Permits,
    sockets: Permits,
}

/// Permits for requests of one kind.
#[derive(Debug)]
struct Permits {
    sandboxes: KeyedSemaphores,
    owners: KeyedSemaphores,
    /// Name of the requests in messages.
    what: &'static str,
}

/// Permit of a request in progress.
#[derive(Debug)]
pub(crate) struct PreviewPermit {
    _sandbox: OwnedSemaphorePermit,
    _owner: OwnedSemaphorePermit,
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Plain,
    WebSocket,
}

/// Limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{limit} {what} of this {subject} are in progress; close some")]
pub(crate) struct LimitReached {
    pub(crate) limit: usize,
    /// Name of the requests.
    what: &'static str,
    /// Word for what the limit applies to: `sandbox` or `owner`.
    subject: &'static str,
}

impl Previews {
    pub(crate) fn new(settings: &Settings, secret: &SigningSecret) -> Self {
        let set = settings.preview_domain.as_ref().map(|domain| domain.0.to_ascii_lowercase());
        let default = || settings.api_host.is_loopback().then(|| LOOPBACK_DOMAIN.to_owned());
        Self {
            domain: set.or_else(default),
            tokens: PreviewTokens::new(secret),
            pool: Arc::default(),
            requests: Permits {
                sandboxes: KeyedSemaphores::new(REQUESTS_PER_SANDBOX_MAX),
                owners: KeyedSemaphores::new(REQUESTS_PER_OWNER_MAX),
                what: "requests to previews",
            },
            sockets: Permits {
                sandboxes: KeyedSemaphores::new(SOCKETS_PER_SANDBOX_MAX),
                owners: KeyedSemaphores::new(SOCKETS_PER_OWNER_MAX),
                what: "WebSockets to previews",
            },
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
        let permits = match kind {
            RequestKind::Plain => &self.requests,
            RequestKind::WebSocket => &self.sockets,
        };
        let acquire = |semaphores: &KeyedSemaphores, name, subject| {
            let permit = semaphores.semaphore(name).try_acquire_owned();
            permit.map_err(|_| LimitReached { limit: semaphores.permits(), what: permits.what, subject })
        };
        Ok(PreviewPermit {
            _sandbox: acquire(&permits.sandboxes, sandbox, "sandbox")?,
            _owner: acquire(&permits.owners, owner, "owner")?,
        })
    }
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
        let sockets: Vec<_> = (0..SOCKETS_PER_SANDBOX_MAX).map(|_| socket().unwrap()).collect();
        assert_eq!(socket().unwrap_err().limit, SOCKETS_PER_SANDBOX_MAX);
        let message = socket().unwrap_err().to_string();
        assert_eq!(message, "1000 WebSockets to previews of this sandbox are in progress; close some");
        assert!(plain("sbx-1").is_ok(), "pages still load");
        drop(sockets);
        assert!(socket().is_ok());
    }
}
