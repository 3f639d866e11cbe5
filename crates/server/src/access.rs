//! Rules that say who may use a route. Every group of routes declares its own, next to the routes.
//!
//! A route without a rule accepts only keys.

use axum::http::Method;
use workspace_api::access::Right;

/// Callers that may use a route. A key may use every route that its role allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Keys only.
    Keys,
    /// Keys, and every token for the sandbox in the path. On a route without a sandbox, every token.
    AnyToken,
    /// Keys, and tokens for the sandbox in the path that have this right.
    Right(Right),
}

/// Credential that a route also accepts in its query. It is used only if no header has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryCredential {
    /// Ticket for a terminal, the parameter `pty` of the path.
    Ticket,
    /// Signature for a file, the parameter `path` of the path.
    Signature,
}

/// Rule for one method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Method in capitals. A rule for `GET` is also for `HEAD`.
    pub method: &'static str,
    /// Pattern of the route, as in the router: `/api/v1/sandboxes/{id}`.
    pub path: &'static str,
    /// Callers that may use the route.
    pub access: Access,
    /// Credential in the query that the route accepts; `None` for most routes.
    pub query: Option<QueryCredential>,
}

impl Rule {
    /// Creates a rule that accepts only API keys, no tokens of sandboxes.
    pub const fn only_keys(method: &'static str, path: &'static str) -> Self {
        Self { method, path, access: Access::Keys, query: None }
    }

    /// Creates a rule that accepts every token for the sandbox in the path.
    pub const fn any_token(method: &'static str, path: &'static str) -> Self {
        Self { method, path, access: Access::AnyToken, query: None }
    }

    /// Creates a rule that accepts tokens with a right.
    pub const fn right(method: &'static str, path: &'static str, right: Right) -> Self {
        Self { method, path, access: Access::Right(right), query: None }
    }

    /// Accepts a credential in the query, too.
    #[must_use]
    pub const fn or_query(mut self, credential: QueryCredential) -> Self {
        self.query = Some(credential);
        self
    }
}

/// Finds the rule for a request, by the pattern of its route.
pub(crate) fn find(rules: &[Rule], method: &Method, route: Option<&str>) -> Option<Rule> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    rules.iter().find(|rule| Some(rule.path) == route && rule.method == method).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_by_method_and_route() {
        let rules = [
            Rule::only_keys("POST", "/a/{id}"),
            Rule::right("GET", "/a/{id}", Right::Process).or_query(QueryCredential::Ticket),
        ];
        let access = |method: Method, route| find(&rules, &method, route).map(|rule| rule.access);
        assert_eq!(access(Method::POST, Some("/a/{id}")), Some(Access::Keys));
        assert_eq!(access(Method::HEAD, Some("/a/{id}")), Some(Access::Right(Right::Process)));
        assert_eq!(access(Method::PUT, Some("/a/{id}")), None);
        assert_eq!(access(Method::GET, Some("/a/b")), None);
        assert_eq!(access(Method::GET, None), None);
    }
}
