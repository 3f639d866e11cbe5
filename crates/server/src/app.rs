//! What the routes share, and the router that is made of their parts.

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
use crate::snapshots::{Snapshots, Turns};
use crate::{
    episodes, health, keys, openapi, process, processes, pty, request, sandboxes, snapshots, system,
    templates,
};

/// What the routes share. Clones are the same.
#[derive(Clone)]
pub struct App {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The SQL side.
    pub catalog: Catalog,
    /// The sandboxes.
    pub sandboxes: Service,
    /// The snapshots and episodes of everybody. Whose they are is known to [`App::snapshots`]. Its calls block.
    pub store: Store,
    pub(crate) turns: Arc<Turns>,
    pub(crate) answer_memory: Arc<OwnerMemory>,
    pub(crate) upload_memory: Arc<OwnerMemory>,
    /// Connections to each terminal.
    pub(crate) terminal_connections: Arc<PerOwner>,
    pub(crate) creations: Arc<Creations>,
    /// When the server was started.
    pub since: Instant,
    /// The audit log.
    pub audit: Audit,
    /// The numbers.
    pub metrics: Metrics,
    /// The checks of `/ready`.
    pub readiness: Readiness,
    /// Whether the server is stopping, and what is under way.
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
    /// What they are, for OpenAPI.
    pub document: Description,
}

impl App {
    /// Opens the audit log, and begins to count.
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
            turns: Arc::new(Turns::new(&settings)),
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

    /// The snapshots, each for those whose it is.
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
            tracing::error!(%error, "the catalog does not answer");
            Err("the database does not answer".to_owned())
        }
    }
}

/// The parts of the API. A new one is added here and nowhere else.
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

/// The whole API. Everything needs a key but what a part says is open, paths that there are not included: who has
/// no key learns nothing of what there is.
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
