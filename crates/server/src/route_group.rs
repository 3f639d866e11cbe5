//! A group of routes with their OpenAPI description.

use axum::Router;
use utoipa::openapi::OpenApi;

use crate::app::App;

/// Some routes and their description. The path of a route is whole, not relative.
pub struct Part {
    /// Routes that anyone may call.
    pub open: Router<App>,
    /// Routes that need a key; a handler gets its [`Caller`](crate::caller::Caller).
    pub closed: Router<App>,
    /// OpenAPI description of these routes.
    pub document: OpenApi,
}
