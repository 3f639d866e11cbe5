//! `/api/v1/stats` and `/api/v1/gc`: statistics and garbage collection, for admins.

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use serde_json::json;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::system::{GcReport, MachineUsage, NfsStats, SandboxCounts, SystemStats};
use workspace_catalog::VisibleState;

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::Json;
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;

#[derive(OpenApi)]
#[openapi(paths(stats, collect))]
struct Document;

const RULES: &[Rule] = &[Rule::only_keys("GET", "/api/v1/stats"), Rule::only_keys("POST", "/api/v1/gc")];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new().route("/api/v1/stats", get(stats)).route("/api/v1/gc", post(collect));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Get statistics of the server.
///
/// Admins only.
#[utoipa::path(get, path = "/api/v1/stats", tag = "system", operation_id = "system_stats", responses(
    (status = 200, description = "Statistics", body = SystemStats),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn stats(State(app): State<App>, caller: Caller) -> Result<Json<SystemStats>, ApiError> {
    caller.require_admin()?;
    let counts = app.catalog.sandboxes().count_by_state(&app.sandboxes.settings().server).await?;
    let count = |wanted| counts.iter().filter(|(state, _)| *state == wanted).map(|(_, number)| number).sum();
    Ok(Json(SystemStats {
        sandboxes: SandboxCounts {
            total: counts.iter().map(|(_, count)| count).sum(),
            paused: count(VisibleState::Paused),
            running: count(VisibleState::Running),
            stopped: count(VisibleState::Stopped),
            error: count(VisibleState::Error),
        },
        resources: machine_usage(&app.settings.data_dir).map_err(ApiError::internal)?,
        nfs: NfsStats { mode: app.nfs.mode().to_owned(), connections: app.nfs.connections() },
        uptime: app.started_at.elapsed().as_secs(),
    }))
}

fn machine_usage(data: &std::path::Path) -> std::io::Result<MachineUsage> {
    let percent =
        |part: f64, whole: f64| if whole > 0.0 { (part * 100.0 / whole).clamp(0.0, 100.0) } else { 0.0 };
    let load = workspace_host::host_status::load()?;
    let cores = std::thread::available_parallelism()?.get() as f64;
    let disk = rustix::fs::statvfs(data)?;
    let (blocks, available) = (disk.f_blocks as f64, disk.f_bavail as f64);
    Ok(MachineUsage {
        cpu_usage: percent(load.load_average, cores),
        memory_usage: percent(load.memory - load.available, load.memory),
        disk_usage: percent(blocks - available, blocks),
    })
}

/// Run a garbage collection.
///
/// Removes expired sandboxes, sandboxes and workspaces that are not in the catalog, and unused layers. Admins only.
#[utoipa::path(post, path = "/api/v1/gc", tag = "system", responses(
    (status = 200, description = "Result of the collection", body = GcReport),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn collect(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
) -> Result<Json<GcReport>, ApiError> {
    caller.require_admin()?;
    let collected = app.sandboxes.collect().await?;
    let details = json!({ "sandboxes": collected.sandboxes, "workspaces": collected.workspaces, "layers": collected.layers });
    app.audit.record(Entry::for_caller("gc", &caller, &request, details));
    Ok(Json(GcReport {
        cleaned_sandboxes: collected.sandboxes,
        cleaned_workspaces: collected.workspaces,
        cleaned_layers: collected.layers,
        freed_space: collected.freed,
    }))
}
