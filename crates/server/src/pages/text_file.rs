//! Embedded text files with their content types.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
pub(super) const CSS: &str = "text/css; charset=utf-8";

pub(super) fn text_file(content_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
