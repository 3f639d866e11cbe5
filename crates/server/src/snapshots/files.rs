//! `/api/v1/snapshots/{id}/files`: content of files.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;

use super::body;
use super::content::Content;
use super::snapshot_path::SnapshotPath;
use super::work_limits::WorkLimits;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::store::with_store;

/// Get the content of a file in a snapshot, or a range of it.
///
/// Symlinks are not followed.
#[utoipa::path(get, path = "/api/v1/snapshots/{id}/files/{path}", tag = "snapshots", operation_id = "get_snapshot_file",
    params(
        ("id" = String, Path, description = "Full id of the snapshot"),
        ("path" = String, Path, description = "Path in the snapshot. Slashes may be encoded as `%2F`, other bytes as `%XX`"),
        ("Range" = Option<String>, Header, description = "Range of bytes, such as `bytes=0-99`. Several ranges are ignored, and the whole file is sent"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of cached content"),
    ),
    responses(
        (status = 200, description = "Content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "Range of the content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "The cached content is current"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn content(
    State(app): State<App>,
    caller: Caller,
    location: SnapshotPath,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let snapshot = app.snapshots().find(&scope(&caller), &location.id).await?;
    let permit = app.work_limits.read(&caller.owner).await;
    let content = with_store(&app.store, move |store| {
        let _permit = permit;
        Content::open(store, snapshot, location.path)
    });
    content_response(&method, &headers, content.await?, &app.work_limits, &caller.owner).await
}

async fn content_response(
    method: &Method,
    headers: &HeaderMap,
    content: Content,
    limits: &Arc<WorkLimits>,
    owner: &str,
) -> Result<Response, ApiError> {
    let (size, tag) = (content.size(), content.tag().to_owned());
    let mut response_headers = vec![
        (header::ETAG, tag.clone()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        // The content never changes, but access to it may: caches must revalidate.
        (header::CACHE_CONTROL, "private, no-cache".to_owned()),
    ];
    if values(headers, &header::IF_NONE_MATCH).any(|known| matches(known, &tag)) {
        return respond(StatusCode::NOT_MODIFIED, response_headers, Body::empty());
    }
    // The range applies only to the content that the client has.
    let same = headers.get(header::IF_RANGE).is_none_or(|known| known.as_bytes() == tag.as_bytes());
    let range = headers.get(header::RANGE).filter(|_| same && method == Method::GET);
    let range = range.and_then(|range| range.to_str().ok()).and_then(Range::parse);
    let (status, from, len) = match range {
        None => (StatusCode::OK, 0, size),
        Some(range) => {
            let (from, len) = range.within(size).ok_or_else(|| outside(size))?;
            response_headers.push((header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", from + len - 1)));
            (StatusCode::PARTIAL_CONTENT, from, len)
        }
    };
    response_headers.push((header::CONTENT_TYPE, "application/octet-stream".to_owned()));
    response_headers.push((header::CONTENT_LENGTH, len.to_string()));
    let has_no_body = method == Method::HEAD || len == 0;
    let body = if has_no_body {
        Body::empty()
    } else {
        body::stream(content.narrow(from, len), limits, owner).await?
    };
    respond(status, response_headers, body)
}

fn respond(
    status: StatusCode,
    response_headers: Vec<(HeaderName, String)>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut response = (status, body).into_response();
    for (name, value) in response_headers {
        let value = HeaderValue::try_from(value).map_err(ApiError::internal)?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Returns the items of a header that is a list.
fn values<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

fn matches(known: &str, tag: &str) -> bool {
    known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
}

fn outside(size: u64) -> ApiError {
    let error = ApiError::new(error_codes::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"));
    let error = error.detail("size", size);
    match HeaderValue::try_from(format!("bytes */{size}")) {
        Ok(value) => error.header(header::CONTENT_RANGE, value),
        Err(_) => error,
    }
}

/// Requested range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    /// From one byte to another, or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

impl Range {
    /// Parses a single range. `None` for several ranges and unknown forms: then the whole file is sent.
    fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // A number that does not fit is beyond the end of every file.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (first, last) {
            ("", last) => number(last).map(Self::Last),
            (first, "") => number(first).map(|first| Self::From(first, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// Returns offset and length in content of that size; `None` if the range is outside.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let (from, len) = match self {
            Self::From(from, last) => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                (from, end.saturating_sub(from))
            }
            Self::Last(len) => (size.saturating_sub(len), len.min(size)),
        };
        (len > 0).then_some((from, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_rfc_9110_says() {
        for (text, size, expected) in [
            ("bytes=0-0", 10, Some((0, 1))),
            ("bytes=2-5", 10, Some((2, 4))),
            ("Bytes = 2-", 10, Some((2, 8))),
            ("bytes=5-999999999999999999999999", 10, Some((5, 5))),
            ("bytes=-3", 10, Some((7, 3))),
            ("bytes=-30", 10, Some((0, 10))),
            ("bytes=-0", 10, None),
            ("bytes=10-", 10, None),
            ("bytes=10-12", 10, None),
            ("bytes=0-", 0, None),
            ("bytes=-5", 0, None),
        ] {
            assert_eq!(Range::parse(text).unwrap().within(size), expected, "{text} of {size}");
        }
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-2",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
        ] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }
}
