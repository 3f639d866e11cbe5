//! The shared state of the routes, and the router that is built from their parts.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use utoipa::openapi::OpenApi as Description;
use workspace_api::error_codes;
use workspace_catalog::Catalog;
use workspace_sandbox::Service;
use workspace_state::Store;

use crate::audit::{Audit, Retention};
use crate::auth::{self, Cache};
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::owner_memory::OwnerMemory;
use crate::per_owner::PerOwner;
use crate::private::PrivateError;
use crate::rate::Limiter;
use crate::readiness::{self, Readiness};
use crate::sandboxes::Creations;
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::snapshots::{Snapshots, WorkLimits};
use crate::{
    episodes, health, keys, openapi, process, processes, pty, request, sandboxes, snapshots, system,
    templates,
};

/// Shared state of the routes. Clones share it.
#[derive(Clone)]
pub struct App {
    /// The settings.
    pub settings: Arc<Settings>,
    /// Database of sandboxes, keys and owners.
    pub catalog: Catalog,
    /// The sandboxes.
    pub sandboxes: Service,
    /// Snapshots and episodes of all owners. [`App::snapshots`] knows the owners. Its calls block.
    pub store: Store,
    pub(crate) work_limits: Arc<WorkLimits>,
    pub(crate) answer_memory: Arc<OwnerMemory>,
    pub(crate) upload_memory: Arc<OwnerMemory>,
    /// Connections to each terminal.
    pub(crate) terminal_connections: Arc<PerOwner>,
    pub(crate) creations: Arc<Creations>,
    /// Start time of the server.
    pub since: Instant,
    /// The audit log.
    pub audit: Audit,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// The checks of `/ready`.
    pub readiness: Readiness,
    /// Shutdown flag and the count of requests in progress.
    pub shutdown: Shutdown,
    pub(crate) cache: Arc<Cache>,
    pub(crate) limiter: Arc<Limiter>,
}

/// Some routes and their description. The path of a route is whole, not relative.
pub struct Part {
    /// Routes that anyone may call.
    pub open: Router<App>,
    /// Routes that need a key; a handler gets its [`Caller`](crate::auth::Caller).
    pub closed: Router<App>,
    /// OpenAPI description of these routes.
    pub document: Description,
}

impl App {
    /// Opens the audit log and registers metrics and readiness checks.
    pub fn new(
        settings: Settings,
        catalog: Catalog,
        sandboxes: Service,
        store: &Store,
    ) -> Result<Self, PrivateError> {
        let retention = Retention { max_bytes: settings.audit_max.0, kept: settings.audit_kept };
        let audit = Audit::open(&settings.audit_log, retention, settings.audit_redact.0.clone())?;
        let (metrics, readiness) = (Metrics::default(), Readiness::default());
        let counted = audit.clone();
        metrics.add(move |text| counted.render(text));
        let asked = catalog.clone();
        readiness.add("catalog", move || answers(asked.clone()));
        let (service, creations) = (sandboxes.clone(), Arc::<Creations>::default());
        readiness::add_checks(&readiness, &settings, &sandboxes, &creations);
        let counted = creations.clone();
        metrics.add(move |text| sandboxes::render(&service, &counted, text));
        let shutdown = Shutdown::with_work(sandboxes.settings().cancel.clone());
        Ok(Self {
            work_limits: Arc::new(WorkLimits::new(&settings)),
            answer_memory: Arc::new(OwnerMemory::of_answers()),
            upload_memory: Arc::new(OwnerMemory::of_uploads()),
            terminal_connections: Arc::new(PerOwner::new(pty::CONNECTIONS_MAX)),
            limiter: Arc::new(Limiter::new(&settings)),
            settings: Arc::new(settings),
            catalog,
            sandboxes,
            store: store.with_cancel(shutdown.work().clone()),
            creations,
            since: Instant::now(),
            audit,
            metrics,
            readiness,
            shutdown,
            cache: Arc::default(),
        })
    }

    /// Returns the snapshots with their owners.
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots { store: &self.store, catalog: &self.catalog }
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
    }
}

async fn answers(catalog: Catalog) -> Result<String, String> {
    match catalog.api_keys().find_by_hash("").await {
        Ok(_) => Ok("the database answers".to_owned()),
        Err(error) => {
            tracing::error!(%error, "catalog database did not respond");
            Err("the database does not answer".to_owned())
        }
    }
}

/// Returns the parts of the API. A new one is added here and nowhere else.
pub fn parts() -> Vec<Part> {
    vec![
        health::part(),
        keys::part(),
        sandboxes::part(),
        process::part(),
        processes::part(),
        pty::part(),
        templates::part(),
        snapshots::part(),
        episodes::part(),
        system::part(),
    ]
}

/// Builds the whole API. Everything needs a key except the open routes of a part. Unknown paths need one,
/// too, so that a caller without a key learns nothing about the paths.
pub fn router(app: App, parts: Vec<Part>) -> Result<Router, serde_json::Error> {
    let description = openapi::describe(&parts);
    let (mut open, mut closed) = (openapi::routes(&description)?, Router::new());
    for part in parts {
        open = open.merge(part.open);
        closed = closed.merge(part.closed);
    }
    let open = open.method_not_allowed_fallback(no_such_method);
    let closed = closed
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_path)
        .layer(from_fn_with_state(app.clone(), auth::authenticate));
    let body_max = usize::try_from(app.settings.max_body.0).unwrap_or(usize::MAX);
    Ok(open
        .merge(closed)
        .layer(DefaultBodyLimit::max(body_max))
        .layer(from_fn_with_state(app.clone(), request::around))
        .with_state(app))
}

async fn no_such_path() -> ApiError {
    ApiError::new(error_codes::NOT_FOUND, "the API has no such path; /api/docs describes it")
}

async fn no_such_method() -> ApiError {
    ApiError::new(error_codes::METHOD_NOT_ALLOWED, "the path does not have that method")
}
