//! `/api/v1/sandboxes/{id}/files`, `entries`, `watch` and `ports`: files and TCP ports of a running sandbox.
//!
//! The I/O worker of the sandbox, a process that the guest agent starts, does the work with the rights of the sandbox's
//! user. It is not trusted. Content goes through this server piece by piece: a client that does not read or send for a
//! minute is disconnected, and the transfer ends with the connection.

mod archive_download;
mod archive_upload;
mod batch;
mod conditions;
mod content;
mod conversion;
mod download;
mod entries;
mod location;
mod port_socket;
mod ports;
mod query;
mod upload;
mod watch;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post};
use utoipa::OpenApi;
use workspace_api::access::Right;
use workspace_api::files::WatchEvent;

use crate::access::{QueryCredential, Rule};
use crate::app::App;
use crate::route_group::RouteGroup;

#[derive(OpenApi)]
#[openapi(
    paths(
        download::read,
        upload::write,
        batch::remove,
        batch::run,
        entries::list,
        watch::watch,
        ports::list,
        ports::connect
    ),
    components(schemas(WatchEvent))
)]
struct Document;

const RULES: &[Rule] = &[
    Rule::right("POST", "/api/v1/sandboxes/{id}/files", Right::FilesWrite),
    Rule::right("GET", "/api/v1/sandboxes/{id}/files/", Right::FilesRead),
    Rule::right("PUT", "/api/v1/sandboxes/{id}/files/", Right::FilesWrite),
    Rule::right("DELETE", "/api/v1/sandboxes/{id}/files/", Right::FilesWrite),
    Rule::right("GET", "/api/v1/sandboxes/{id}/files/{*path}", Right::FilesRead)
        .or_query(QueryCredential::Signature),
    Rule::right("PUT", "/api/v1/sandboxes/{id}/files/{*path}", Right::FilesWrite)
        .or_query(QueryCredential::Signature),
    Rule::right("DELETE", "/api/v1/sandboxes/{id}/files/{*path}", Right::FilesWrite),
    Rule::right("GET", "/api/v1/sandboxes/{id}/entries/", Right::FilesRead),
    Rule::right("GET", "/api/v1/sandboxes/{id}/entries/{*path}", Right::FilesRead),
    Rule::right("GET", "/api/v1/sandboxes/{id}/watch/", Right::FilesRead),
    Rule::right("GET", "/api/v1/sandboxes/{id}/watch/{*path}", Right::FilesRead),
    Rule::right("GET", "/api/v1/sandboxes/{id}/ports", Right::Ports),
    Rule::right("GET", "/api/v1/sandboxes/{id}/ports/{port}/connect", Right::Ports),
];

/// Returns all routes for files and ports. The routes that end with a slash are for the root directory.
pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route(
            "/api/v1/sandboxes/{id}/files",
            post(batch::run).layer(DefaultBodyLimit::max(batch::BODY_BYTES_MAX)),
        )
        .route("/api/v1/sandboxes/{id}/files/", file_routes())
        .route("/api/v1/sandboxes/{id}/files/{*path}", file_routes())
        .route("/api/v1/sandboxes/{id}/entries/", get(entries::list))
        .route("/api/v1/sandboxes/{id}/entries/{*path}", get(entries::list))
        .route("/api/v1/sandboxes/{id}/watch/", get(watch::watch))
        .route("/api/v1/sandboxes/{id}/watch/{*path}", get(watch::watch))
        .route("/api/v1/sandboxes/{id}/ports", get(ports::list))
        .route("/api/v1/sandboxes/{id}/ports/{port}/connect", get(ports::connect));
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// Returns the methods of a file. `MAX_UPLOAD` limits its content, which is written as it arrives.
fn file_routes() -> MethodRouter<App> {
    get(download::read).put(upload::write).delete(batch::remove).layer(DefaultBodyLimit::disable())
}
