//! Groups of routes with their OpenAPI documents.

use axum::Router;
use utoipa::openapi::OpenApi;

use crate::access::Rule;
use crate::app::App;

/// Routes of one area of the API. Their paths are absolute.
pub struct RouteGroup {
    /// Routes that need no key.
    pub public: Router<App>,
    /// Routes that need a key. Their handlers can extract the [`Caller`](crate::caller::Caller).
    pub authenticated: Router<App>,
    /// Rules for the routes that need a key. A route without one refuses tokens.
    pub rules: &'static [Rule],
    /// OpenAPI document of these routes.
    pub document: OpenApi,
}

impl RouteGroup {
    /// Creates a group whose routes all need a key.
    pub fn authenticated(routes: Router<App>, document: OpenApi) -> Self {
        Self { public: Router::new(), authenticated: routes, rules: &[], document }
    }

    /// Sets the rules for the routes that need a key.
    #[must_use]
    pub fn with_rules(mut self, rules: &'static [Rule]) -> Self {
        self.rules = rules;
        self
    }
}
