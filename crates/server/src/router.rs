//! Router of the whole API.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use workspace_api::error_codes;

use crate::access::Rule;
use crate::app::App;
use crate::auth::AuthState;
use crate::error::ApiError;
use crate::route_group::RouteGroup;
use crate::{
    auth, commands, episodes, event_log, health, keys, me, nfs, notes, openapi, pages, preview, processes,
    projects, pty, references, request, sandbox_io, sandboxes, signed_url, snapshots, system,
    template_builds, templates, tokens,
};

/// Returns all route groups of the API. Add a new one only here.
pub fn route_groups() -> Vec<RouteGroup> {
    vec![
        pages::route_group(),
        health::route_group(),
        keys::route_group(),
        me::route_group(),
        sandboxes::route_group(),
        sandbox_io::route_group(),
        signed_url::route_group(),
        tokens::route_group(),
        commands::route_group(),
        processes::route_group(),
        notes::route_group(),
        projects::route_group(),
        projects::agent_workspaces::route_group(),
        pty::route_group(),
        preview::route::route_group(),
        templates::route_group(),
        template_builds::route_group(),
        snapshots::route_group(),
        references::route_group(),
        episodes::route_group(),
        event_log::route_group(),
        system::route_group(),
        nfs::routes::route_group(),
    ]
}

/// Builds the router of the whole API. Unknown paths need a key, too, so that a caller without a key cannot find
/// out which paths exist.
pub fn router(app: App, groups: Vec<RouteGroup>) -> Result<Router, serde_json::Error> {
    let document = openapi::merge(&groups);
    let rules: Arc<[Rule]> = groups.iter().flat_map(|group| group.rules).copied().collect();
    let auth_state = AuthState { app: app.clone(), rules };
    let (mut public, mut authenticated) = (openapi::routes(&document)?, Router::new());
    for group in groups {
        public = public.merge(group.public);
        authenticated = authenticated.merge(group.authenticated);
    }
    let public = public.method_not_allowed_fallback(no_such_method);
    let authenticated = authenticated
        .method_not_allowed_fallback(no_such_method)
        .fallback(no_such_path)
        .layer(from_fn_with_state(auth_state, auth::authenticate));
    let body_max = usize::try_from(app.settings.max_body.0).unwrap_or(usize::MAX);
    Ok(public
        .merge(authenticated)
        .layer(DefaultBodyLimit::max(body_max))
        .layer(from_fn_with_state(app.clone(), request::middleware))
        .with_state(app))
}

/// Returns the text of `docs/openapi.json`.
pub fn openapi_json() -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&openapi::merge(&route_groups())).map(|text| text + "\n")
}

async fn no_such_path() -> ApiError {
    ApiError::new(error_codes::NOT_FOUND, "the API has no such path; /api/docs lists all paths")
}

async fn no_such_method() -> ApiError {
    ApiError::new(error_codes::METHOD_NOT_ALLOWED, "the path does not support that method")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::openapi::documented_path;

    /// Returns the paths of a router, from its debug output: axum has no other list of them.
    fn paths(router: &Router<App>) -> BTreeSet<String> {
        let text = format!("{router:?}");
        let quoted = text.split('"').filter(|part| part.starts_with('/') && part.len() > 1);
        quoted.filter(|path| !path.contains("__private__axum")).map(str::to_owned).collect()
    }

    #[test]
    fn every_route_that_needs_a_key_declares_the_rights_that_tokens_need() {
        let mut count = 0;
        for group in route_groups() {
            let declared: BTreeSet<String> = group.rules.iter().map(|rule| rule.path.to_owned()).collect();
            assert_eq!(declared, paths(&group.authenticated), "rules of the group, and its routes");
            count += declared.len();
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn every_operation_that_needs_a_key_has_one_rule() {
        let groups = route_groups();
        let rules: Vec<(&str, String)> = groups
            .iter()
            .flat_map(|group| group.rules)
            .map(|rule| (rule.method, documented_path(rule.path)))
            .collect();
        let document = serde_json::to_value(openapi::merge(&groups)).unwrap();
        let mut documented = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if operation["security"] == serde_json::json!([{}]) {
                    continue;
                }
                let method = method.to_uppercase();
                let count = rules.iter().filter(|rule| (rule.0, &rule.1) == (method.as_str(), path)).count();
                assert_eq!(count, 1, "rules for {method} {path}");
                documented.insert((method, path.clone()));
            }
        }
        for (method, path) in rules {
            // Paths that end with a slash are other spellings of documented ones.
            let is_documented = documented.contains(&(method.to_owned(), path.clone()));
            assert!(is_documented || path.ends_with('/'), "there is no {method} {path}");
        }
    }

    #[test]
    fn the_description_names_the_right_of_every_operation() {
        let document = serde_json::to_value(openapi::merge(&route_groups())).unwrap();
        let security = |path: &str, method: &str| document["paths"][path][method]["security"].clone();
        let run = security("/api/v1/sandboxes/{id}/process/run", "post");
        assert_eq!(run, serde_json::json!([{"bearer": []}, {"apiKey": []}, {"sandboxToken": ["process"]}]));
        let socket = security("/api/v1/sandboxes/{id}/pty/{pty}/ws", "get");
        assert_eq!(socket[3], serde_json::json!({"ticket": []}));
        assert_eq!(security("/api/v1/keys", "get"), serde_json::Value::Null);
        let schemes = &document["components"]["securitySchemes"];
        for name in ["bearer", "apiKey", "sandboxToken", "ticket", "signature"] {
            assert!(schemes[name].is_object(), "{name}: {schemes}");
        }
    }
}
