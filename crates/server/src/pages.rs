//! Pages for browsers: the front page at `/` and the API browser at `/api/docs`.
//!
//! Everything that they load is embedded in the program and served from here; their content security policies allow
//! nothing from elsewhere.

use axum::Router;
use axum::routing::get;
use utoipa::OpenApi;

use self::text_file::{CSS, text_file};
use crate::route_group::RouteGroup;

mod api_docs;
mod assets;
mod front;
mod text_file;

const STYLE: &str = include_str!("pages/page.css");

#[derive(OpenApi)]
#[openapi(paths(front::front_page, api_docs::api_docs))]
struct Document;

/// Returns the routes of the pages and of the files that they load.
pub(crate) fn route_group() -> RouteGroup {
    let public = Router::new()
        .route("/", get(front::front_page))
        .route("/api/docs/page.css", get(async || text_file(CSS, STYLE)))
        .merge(api_docs::routes())
        .merge(assets::routes());
    RouteGroup { public, authenticated: Router::new(), rules: &[], document: Document::openapi() }
}
