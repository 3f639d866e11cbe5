//! Error pages of previews: HTML for browsers, and the JSON of the API for programs.

use axum::body::Body;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;

use crate::error::ApiError;
use crate::request::REQUEST_ID;

/// Headers of every error, so that pages of programs cannot be confused with it.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Returns true if `Accept` names `text/html`, as browsers do.
pub(crate) fn accepts_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

/// Adds headers to an error response, and for browsers replaces its body by a page. Other responses stay as they are.
pub(crate) fn finish(mut response: Response, request_id: &str, accepts_html: bool) -> Response {
    let Some(error) = response.extensions().get::<ApiError>() else { return response };
    if accepts_html {
        let page = page(error, request_id);
        *response.body_mut() = Body::from(page);
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

fn page(error: &ApiError, request_id: &str) -> String {
    let (name, message, request_id) = (error.code().name, escape(error.message()), escape(request_id));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Preview: {name}</title>\n\
         <h1>This preview cannot be shown</h1>\n<p>{message}</p>\n<p>{name}, request {request_id}</p>\n</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;
    use workspace_api::error_codes;

    #[test]
    fn browsers_get_a_page_and_messages_are_escaped() {
        let headers =
            |accept: &'static str| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
        assert!(accepts_html(&headers("text/html,application/xhtml+xml,*/*;q=0.8")));
        assert!(!accepts_html(&headers("*/*")) && !accepts_html(&HeaderMap::new()));
        let error = ApiError::new(error_codes::PREVIEW_FAILED, "<script>&\"");
        assert!(page(&error, "req-1").contains("<p>&lt;script&gt;&amp;&quot;</p>"));
        let response = finish(error.into_response(), "req-1", true);
        assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
        assert_eq!(response.headers()["content-security-policy"], "default-src 'none'");
        assert_eq!(response.headers()["x-request-id"], "req-1");
        let of_program = finish(Response::new(Body::empty()), "req-1", true);
        assert!(of_program.headers().is_empty());
    }
}
