//! Shared state of the routes.

use std::sync::Arc;
use std::time::Instant;

use workspace_catalog::Catalog;
use workspace_context::projects::Projects;
use workspace_sandbox::Service;
use workspace_state::Store;

use crate::audit::{Audit, Retention};
use crate::caller_cache::CallerCache;
use crate::event_log::event_ids::EventIdSecret;
use crate::event_log::feed::EventFeed;
use crate::keyed_semaphores::KeyedSemaphores;
use crate::metrics::Metrics;
use crate::nfs::server::Nfs;
use crate::owner_memory::OwnerMemory;
use crate::preview::state::Previews;
use crate::private_file::PrivateFileError;
use crate::rate::Limiter;
use crate::readiness::{self, Readiness};
use crate::sandboxes::creations::{self, Creations};
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::signed_file::SignedUrls;
use crate::signing_key::SigningSecret;
use crate::snapshots::owners::Snapshots;
use crate::snapshots::work_limits::WorkLimits;
use crate::tickets::Tickets;
use crate::token::Tokens;

/// Maximum number of connections to one terminal.
pub(crate) const TERMINAL_CONNECTIONS_MAX: usize = 16;
/// Maximum number of open streams of events of one owner.
pub(crate) const EVENT_STREAMS_MAX: usize = 16;

/// Handle of the shared state of the routes. Layers and extractors clone it several times for each request.
#[derive(Clone)]
pub struct App(Arc<AppState>);

impl std::ops::Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// Shared state of the routes.
pub struct AppState {
    /// Settings of the server.
    pub settings: Arc<Settings>,
    /// Database of sandboxes, keys and owners.
    pub catalog: Catalog,
    /// Service that manages the sandboxes of this server.
    pub sandboxes: Service,
    /// Store with the snapshots and episodes (steps of a search) of all owners. It checks no access; use
    /// [`App::snapshots`] for that. Its methods block.
    pub store: Store,
    /// Projects, with their history and completions.
    pub projects: Projects,
    /// Limits on concurrent expensive operations: comparisons, uploads, lists.
    pub(crate) work_limits: Arc<WorkLimits>,
    /// Memory budgets of owners for responses that are not sent yet.
    pub(crate) response_memory: Arc<OwnerMemory>,
    /// Memory budgets of owners for archives that are being uploaded.
    pub(crate) upload_memory: Arc<OwnerMemory>,
    /// Permits for connections, by terminal.
    pub(crate) terminal_connections: Arc<KeyedSemaphores>,
    /// Locks by owner, held while a reference of the owner is changed.
    pub(crate) reference_locks: Arc<KeyedSemaphores>,
    /// Locks by snapshot, which keep it from being deleted while a reference to it is set.
    pub(crate) snapshot_locks: Arc<KeyedSemaphores>,
    /// Permits for open streams of events, by owner.
    pub(crate) event_streams: Arc<KeyedSemaphores>,
    /// Locks by workspace of an agent without a sandbox, held while its work is committed and recorded as completed.
    pub(crate) agent_workspace_locks: Arc<KeyedSemaphores>,
    /// Signals that wake streams of events.
    pub(crate) event_feed: EventFeed,
    /// Secret of the ids under which agents see events.
    pub(crate) event_id_secret: Arc<EventIdSecret>,
    /// Statistics of sandbox creations.
    pub(crate) creations: Arc<Creations>,
    /// Shared state of previews, the HTTP proxy to sandboxes.
    pub(crate) previews: Arc<Previews>,
    /// NFS server.
    pub(crate) nfs: Nfs,
    /// Start time of the server.
    pub started_at: Instant,
    /// Audit log.
    pub audit: Audit,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// Checks of `/ready`.
    pub readiness: Readiness,
    /// Shutdown flag and the count of requests in progress.
    pub shutdown: Shutdown,
    /// Callers by their keys.
    pub(crate) caller_cache: Arc<CallerCache>,
    /// Rate limits of keys.
    pub(crate) limiter: Arc<Limiter>,
    /// Creates and verifies sandbox tokens.
    pub(crate) tokens: Arc<Tokens>,
    /// Creates and verifies signed URLs of files.
    pub(crate) signed_urls: Arc<SignedUrls>,
    /// Unused tickets for terminals.
    pub(crate) tickets: Arc<Tickets>,
}

impl App {
    /// Opens the audit log and registers metrics and readiness checks.
    pub(crate) fn new(
        settings: Settings,
        catalog: Catalog,
        sandboxes: Service,
        projects: Projects,
        store: &Store,
        nfs: Nfs,
        secret: &SigningSecret,
    ) -> Result<Self, PrivateFileError> {
        let retention = Retention { max_bytes: settings.audit_max.0, kept: settings.audit_kept };
        let audit = Audit::open(&settings.audit_log, retention, settings.audit_redact.0.clone())?;
        let (metrics, readiness) = (Metrics::default(), Readiness::default());
        let metrics_audit = audit.clone();
        metrics.add_collector(move |text| metrics_audit.render(text));
        let checked_catalog = catalog.clone();
        readiness.add("catalog", move || check_catalog(checked_catalog.clone()));
        let (service, creations) = (sandboxes.clone(), Arc::<Creations>::default());
        readiness::add_checks(&readiness, &settings, &sandboxes, &creations);
        let metrics_creations = creations.clone();
        metrics.add_collector(move |text| creations::render(&service, &metrics_creations, text));
        let event_feed = EventFeed::new(catalog.clone());
        let metrics_feed = event_feed.clone();
        metrics.add_collector(move |text| metrics_feed.render(text));
        let shutdown = Shutdown::with_cancel(sandboxes.settings().cancel.clone());
        let store = store.with_cancel(shutdown.cancel().clone());
        Ok(Self(Arc::new(AppState {
            projects,
            work_limits: Arc::new(WorkLimits::new(&settings)),
            response_memory: Arc::new(OwnerMemory::for_responses()),
            upload_memory: Arc::new(OwnerMemory::for_uploads()),
            terminal_connections: Arc::new(KeyedSemaphores::new(TERMINAL_CONNECTIONS_MAX)),
            reference_locks: Arc::new(KeyedSemaphores::new(1)),
            snapshot_locks: Arc::new(KeyedSemaphores::new(1)),
            event_streams: Arc::new(KeyedSemaphores::new(EVENT_STREAMS_MAX)),
            agent_workspace_locks: Arc::new(KeyedSemaphores::new(1)),
            event_feed,
            event_id_secret: Arc::new(EventIdSecret::new(secret)),
            limiter: Arc::new(Limiter::new(&settings)),
            previews: Arc::new(Previews::new(&settings, secret)),
            settings: Arc::new(settings),
            catalog,
            sandboxes,
            store,
            creations,
            nfs,
            started_at: Instant::now(),
            audit,
            metrics,
            readiness,
            shutdown,
            caller_cache: Arc::default(),
            tokens: Arc::new(Tokens::new(secret)),
            signed_urls: Arc::new(SignedUrls::new(secret)),
            tickets: Arc::default(),
        })))
    }

    /// Returns the snapshots, with checks of their owners.
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots { store: &self.store, catalog: &self.catalog }
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
    }
}

async fn check_catalog(catalog: Catalog) -> Result<String, String> {
    // Any query will do; no key has this hash.
    match catalog.api_keys().find_by_hash("").await {
        Ok(_) => Ok("the database responds".to_owned()),
        Err(error) => {
            tracing::error!(%error, "catalog database did not respond");
            Err("the database does not respond".to_owned())
        }
    }
}
