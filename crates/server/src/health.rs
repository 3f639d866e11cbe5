//! `/health`, `/ready` and `/metrics`.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::system::{Health, ReadinessReport};

use crate::access::Rule;
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::Json;
use crate::metrics::Metrics;
use crate::route_group::RouteGroup;

#[derive(OpenApi)]
#[openapi(paths(health, ready, metrics))]
struct Document;

const RULES: &[Rule] = &[Rule::only_keys("GET", "/metrics")];

pub(crate) fn route_group() -> RouteGroup {
    RouteGroup {
        public: Router::new().route("/health", get(health)).route("/ready", get(ready)),
        authenticated: Router::new().route("/metrics", get(metrics)),
        rules: RULES,
        document: Document::openapi(),
    }
}

/// Creates the router of `METRICS_PORT`, which needs no key.
pub(crate) fn metrics_router(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(move || async move { metrics_response(&metrics) }))
}

/// Check that the server is alive.
#[utoipa::path(get, path = "/health", tag = "system", security(()), responses(
    (status = 200, description = "The server is alive", body = Health),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn health() -> Json<Health> {
    Json(Health { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Check that the server is ready to create sandboxes.
#[utoipa::path(get, path = "/ready", tag = "system", security(()), responses(
    (status = 200, description = "The server is ready", body = ReadinessReport),
    (status = 503, description = "The server is not ready; retry after the seconds in `Retry-After`", body = ReadinessReport),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn ready(State(app): State<App>) -> (StatusCode, Json<ReadinessReport>) {
    let report = app.readiness.report().await;
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report))
}

/// Get the metrics of the server, in the text format of Prometheus.
///
/// Admins only. If `METRICS_PORT` is set, that port of 127.0.0.1 serves them without a key.
#[utoipa::path(get, path = "/metrics", tag = "system", responses(
    (status = 200, description = "Metrics", body = String, content_type = "text/plain"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn metrics(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require_admin()?;
    Ok(metrics_response(&app.metrics))
}

fn metrics_response(metrics: &Metrics) -> Response {
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([kind], metrics.render()).into_response()
}
