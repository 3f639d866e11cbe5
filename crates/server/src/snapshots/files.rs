//! `/api/v1/snapshots/{id}/files`: content of files.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use workspace_api::error::ErrorBody;
use workspace_state::Snapshot;

use super::body;
use super::content::Content;
use super::tree_location::TreeLocation;
use super::work_limits::WorkLimits;
use crate::app::App;
use crate::byte_range::{ByteRange, not_satisfiable};
use crate::caller::{Caller, scope};
use crate::entity_tag::{header_items, is_same_weakly};
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
    location: TreeLocation,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let snapshot = app.snapshots().find(&scope(&caller), &location.root).await?;
    send_content(&app, &caller, snapshot, location.path, &method, &headers).await
}

/// Responds with the content of a file of a snapshot that the caller may see.
pub(crate) async fn send_content(
    app: &App,
    caller: &Caller,
    snapshot: Snapshot,
    path: Vec<u8>,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let permit = app.work_limits.read(&caller.owner).await;
    let content = with_store(&app.store, move |store| {
        let _permit = permit;
        Content::open(store, snapshot, path)
    });
    content_response(method, headers, content.await?, &app.work_limits, &caller.owner).await
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
    if header_items(headers, &header::IF_NONE_MATCH).any(|known| is_same_weakly(known, &tag)) {
        return respond(StatusCode::NOT_MODIFIED, response_headers, Body::empty());
    }
    // The range applies only to the content that the client has.
    let same = headers.get(header::IF_RANGE).is_none_or(|known| known.as_bytes() == tag.as_bytes());
    let range = headers.get(header::RANGE).filter(|_| same && method == Method::GET);
    let range = range.and_then(|range| range.to_str().ok()).and_then(ByteRange::parse);
    let (status, from, len) = match range {
        None => (StatusCode::OK, 0, size),
        Some(range) => {
            let (from, len) = range.within(size).ok_or_else(|| not_satisfiable(size))?;
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
