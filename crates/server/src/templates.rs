//! `/api/v1/templates`: root filesystems of sandboxes.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::get;
use http_body::Body as _;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio_stream::StreamExt as _;
use utoipa::OpenApi;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::templates::{Template, TemplateDetails};
use workspace_sandbox::runtime;
use workspace_sandbox::template::{ImportOptions, ImportedTemplate, split_version};

use crate::access::Rule;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::error_mapping::{disk_full, is_full};
use crate::extract::{Json, Path};
use crate::request_id::RequestId;
use crate::route_group::RouteGroup;
use crate::time::format_millis;

/// Timeout for receiving the next piece of an archive.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Setting that limits an archive.
const LIMIT_SETTING: &str = "MAX_TEMPLATE";

#[derive(OpenApi)]
#[openapi(paths(list, fetch, import, remove))]
struct Document;

const RULES: &[Rule] = &[
    Rule::only_keys("GET", "/api/v1/templates"),
    Rule::only_keys("GET", "/api/v1/templates/{name}"),
    Rule::only_keys("PUT", "/api/v1/templates/{name}"),
    Rule::only_keys("DELETE", "/api/v1/templates/{name}"),
];

pub(crate) fn route_group() -> RouteGroup {
    let routes = Router::new()
        .route("/api/v1/templates", get(list))
        // `MAX_TEMPLATE` limits the archive instead; it is written to disk as it arrives.
        .route(
            "/api/v1/templates/{name}",
            get(fetch).put(import).delete(remove).layer(DefaultBodyLimit::disable()),
        );
    RouteGroup::authenticated(routes, Document::openapi()).with_rules(RULES)
}

/// List templates.
///
/// The list includes templates that are known but not on this machine (`present` is false).
#[utoipa::path(get, path = "/api/v1/templates", tag = "templates", operation_id = "list_templates", responses(
    (status = 200, description = "Templates", body = Vec<Template>),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn list(State(app): State<App>, _: Caller) -> Result<Json<Vec<Template>>, ApiError> {
    let templates = app.sandboxes.templates().await?;
    Ok(Json(templates.into_iter().map(template_to_api).collect::<Result<_, _>>()?))
}

fn template_to_api(template: runtime::Template) -> Result<Template, ApiError> {
    Ok(Template {
        tags: template.name.split([':', '@']).next().map(str::to_owned).into_iter().collect(),
        version: split_version(&template.name).1.map(str::to_owned),
        name: template.name,
        description: template.description,
        size: template.size,
        created_at: template.created_at.map(format_millis).transpose()?,
        present: template.present,
        fetch_command: template.fetch_command,
    })
}

/// Get a template.
///
/// A name without a version means the newest version of a built template.
#[utoipa::path(get, path = "/api/v1/templates/{name}", tag = "templates", operation_id = "get_template",
    params(("name" = String, Path, description = "Name of the template, or `NAME@VERSION`", example = "base")), responses(
    (status = 200, description = "Template", body = TemplateDetails),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn fetch(
    State(app): State<App>,
    _: Caller,
    Path(name): Path<String>,
) -> Result<Json<TemplateDetails>, ApiError> {
    let all = app.sandboxes.templates().await?;
    // Runtimes without imports have no details.
    let imported = if all.iter().any(|one| one.name == name && one.size.is_none()) {
        None
    } else {
        app.sandboxes.template(&name).ok()
    };
    let name = imported.as_ref().map_or(name, |imported| imported.name.clone());
    let found = all.into_iter().find(|template| template.name == name);
    let missing = || ApiError::new(error_codes::TEMPLATE_NOT_FOUND, format!("there is no template `{name}`"));
    let template = found.ok_or_else(|| missing().detail("template", name.clone()))?;
    let from = imported.as_ref().and_then(|imported| imported.build.as_ref()?.from.clone());
    let envs = imported.map(|imported| imported.envs).unwrap_or_default();
    Ok(Json(TemplateDetails { template: template_to_api(template)?, from, envs }))
}

/// Import a template.
///
/// The body is a tar archive, which may be compressed with gzip or zstd: a root filesystem, the output of `docker save`,
/// or an OCI image layout. Admins only.
#[utoipa::path(put, path = "/api/v1/templates/{name}", tag = "templates", operation_id = "import_template",
    params(("name" = String, Path, description = "Name of the template")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 201, description = "New template", body = Template),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn import(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(name): Path<String>,
    body: Body,
) -> Result<(StatusCode, Json<Template>), ApiError> {
    caller.require_admin()?;
    let max_bytes = app.settings.max_template.0;
    if body.size_hint().exact().is_some_and(|length| length > max_bytes) {
        return Err(too_large(max_bytes, LIMIT_SETTING));
    }
    let _permit = app.work_limits.template(&caller.owner).await?;
    let archive = receive(&app, body, (max_bytes, LIMIT_SETTING)).await?;
    let options = ImportOptions { max_bytes, cancel: app.shutdown.cancel().child() };
    let imported = app.sandboxes.import_template(&name, archive, options).await?;
    app.audit.record(Entry::for_caller("template.imported", &caller, &request, json!({ "template": name })));
    Ok((StatusCode::CREATED, Json(imported_to_api(&imported)?)))
}

/// Converts a template that was imported or built.
pub(crate) fn imported_to_api(imported: &ImportedTemplate) -> Result<Template, ApiError> {
    template_to_api(runtime::Template::from(imported.clone()))
}

/// Writes a body to a file as it arrives. After a write error the body is still read to its end, because a client that
/// is disconnected while it sends does not get the error. The body has at most `max_bytes`, the value of `setting`.
pub(crate) async fn receive(
    app: &App,
    body: Body,
    (max_bytes, setting): (u64, &'static str),
) -> Result<std::fs::File, ApiError> {
    let mut file = tokio::fs::File::from_std(app.sandboxes.receive_template()?);
    let mut pieces = body.into_data_stream();
    let (mut written, mut length) = (Ok(()), 0);
    loop {
        let next = tokio::time::timeout(IDLE_TIMEOUT, pieces.next()).await;
        let next = next.map_err(|_| {
            ApiError::new(error_codes::REQUEST_TIMEOUT, "the archive was not received in time")
        })?;
        let Some(piece) = next else { break };
        let broken = |_| ApiError::new(error_codes::INVALID_REQUEST, "the archive is incomplete");
        let piece = piece.map_err(broken)?;
        length += piece.len() as u64;
        if length > max_bytes {
            return Err(too_large(max_bytes, setting));
        }
        if written.is_ok() {
            written = file.write_all(&piece).await;
        }
    }
    if written.is_ok() {
        written = file.flush().await;
    }
    written.map_err(|error| if is_full(&error) { disk_full() } else { ApiError::internal(error) })?;
    Ok(file.into_std().await)
}

pub(crate) fn too_large(max: u64, setting: &'static str) -> ApiError {
    let message = format!("the archive has more than {max} bytes");
    ApiError::new(error_codes::PAYLOAD_TOO_LARGE, message).detail("limit", max).detail("setting", setting)
}

/// Delete a template.
///
/// Admins only. Fails with `TEMPLATE_IN_USE` while a sandbox uses it.
#[utoipa::path(delete, path = "/api/v1/templates/{name}", tag = "templates", operation_id = "remove_template",
    params(("name" = String, Path, description = "Name of the template")), responses(
    (status = 204, description = "Deleted"),
    (status = "default", description = "Error", body = ErrorBody),
))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    caller.require_admin()?;
    app.sandboxes.remove_template(&name).await?;
    app.audit.record(Entry::for_caller("template.removed", &caller, &request, json!({ "template": name })));
    Ok(StatusCode::NO_CONTENT)
}
