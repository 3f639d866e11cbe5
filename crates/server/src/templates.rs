//! `/api/v1/templates`: what sandboxes can be made from.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};
use workspace_sandbox::runtime;

use crate::app::{App, Part};
use crate::auth::Caller;
use crate::error::{ApiError, ErrorBody};
use crate::extract::Json;
use crate::time::time;

/// What sandboxes can be made from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Template {
    /// Names it.
    #[schema(example = "base")]
    name: String,
    /// What it is.
    description: String,
    /// Words to find it by.
    tags: Vec<String>,
    /// Bytes on disk; none where it is not here.
    size: Option<u64>,
    /// When it came here.
    #[schema(format = DateTime)]
    created_at: Option<String>,
    /// Whether it can be used at once.
    present: bool,
    /// The command that brings it here, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    fetch: Option<String>,
}

#[derive(OpenApi)]
#[openapi(paths(list))]
struct Document;

/// The routes of this file.
pub(crate) fn part() -> Part {
    let routes = Router::new().route("/api/v1/templates", get(list));
    Part { open: Router::new(), closed: routes, document: Document::openapi() }
}

/// List templates, those that are here and those that are known.
#[utoipa::path(get, path = "/api/v1/templates", tag = "templates", operation_id = "list_templates", responses(
    (status = 200, description = "The templates", body = Vec<Template>),
    (status = "default", description = "An error", body = ErrorBody),
))]
async fn list(State(app): State<App>, _: Caller) -> Result<Json<Vec<Template>>, ApiError> {
    let templates = app.sandboxes.templates().await?;
    Ok(Json(templates.into_iter().map(shown).collect::<Result<_, _>>()?))
}

fn shown(template: runtime::Template) -> Result<Template, ApiError> {
    Ok(Template {
        tags: template.name.split(':').next().map(str::to_owned).into_iter().collect(),
        name: template.name,
        description: template.description,
        size: template.size,
        created_at: template.created_at.map(time).transpose()?,
        present: template.present,
        fetch: template.fetch,
    })
}
