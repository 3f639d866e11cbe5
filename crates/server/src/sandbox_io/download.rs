//! `GET /api/v1/sandboxes/{id}/files/{path}`: content of files.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use workspace_api::error::ErrorBody;
use workspace_api::files::{ArchiveFormat, ReadFileQuery};
use workspace_sandbox::{FileEntry, FileRead, Scope};

use super::archive_download;
use super::conditions::{Freshness, check_read};
use super::content::{self, FileContent};
use super::conversion::entity_tag;
use super::location::FileLocation;
use super::query::FileQuery;
use crate::app::App;
use crate::byte_range::{ByteRange, not_satisfiable};
use crate::caller::{Caller, scope};
use crate::error::ApiError;

/// Read a file, or a directory as an archive.
///
/// Symlinks are followed inside the sandbox. Only regular files are read: `NOT_A_FILE` for directories, devices,
/// FIFOs, and files of `/proc` and `/sys`. If the file becomes shorter while it is read, the connection is closed
/// before the end of the body. With `archive=tar`, the response is an archive of a directory, with paths relative to
/// it.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/files/{path}", tag = "files", operation_id = "read_file",
    params(
        ("id" = String, Path, description = "Id of the sandbox"),
        ("path" = String, Path, description = "Path in the sandbox without its first slash. Slashes may be encoded as `%2F`, other bytes as `%XX`"),
        ReadFileQuery,
        ("Range" = Option<String>, Header, description = "Range of bytes, such as `bytes=0-99`. Several ranges are ignored, and the whole file is sent"),
        ("If-Match" = Option<String>, Header, description = "`ETag` that the file must have, else `PRECONDITION_FAILED`"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of cached content"),
    ),
    responses(
        (status = 200, description = "Content; with `archive`, an archive", content(
            (Vec<u8> = "application/octet-stream"), (Vec<u8> = "application/x-tar"))),
        (status = 206, description = "Range of the content", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "The cached content is current"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    location: FileLocation,
    FileQuery(query): FileQuery<ReadFileQuery>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let request = ReadRequest { app: &app, scope: scope(&caller), location, headers };
    match query.archive {
        Some(ArchiveFormat::Tar) => {
            archive_download::respond(&app, &request.scope, &request.location, &method).await
        }
        None if method == Method::HEAD => request.head().await,
        None => request.content().await,
    }
}

struct ReadRequest<'a> {
    app: &'a App,
    scope: Scope,
    location: FileLocation,
    headers: HeaderMap,
}

/// Part of a file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    offset: u64,
    /// Maximum number of bytes, at least 1; `None` to the end of the file.
    length: Option<u64>,
}

const WHOLE: Part = Part { offset: 0, length: None };

impl ReadRequest<'_> {
    async fn open(&self, part: Part) -> Result<FileRead, ApiError> {
        let FileLocation { sandbox, path } = &self.location;
        Ok(self.app.sandboxes.read_file(&self.scope, sandbox, path, part.offset, part.length).await?)
    }

    /// Responds with the headers of the whole file.
    async fn head(&self) -> Result<Response, ApiError> {
        // Reading one byte is the least that shows that the file can be read.
        let read = self.open(Part { offset: 0, length: Some(1) }).await?;
        let size = read.entry.size;
        match check_read(&self.headers, &read.entry)? {
            Freshness::Fresh => not_modified(&read.entry),
            Freshness::Stale => respond(StatusCode::OK, &read.entry, size, None, Body::empty()),
        }
    }

    /// Responds with the content, or a range of it.
    async fn content(&self) -> Result<Response, ApiError> {
        let range = self.headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        let mut range = range.and_then(ByteRange::parse);
        // Conditions are checked before content is transferred, and again below on the file that was opened.
        let needs_entry = [header::IF_MATCH, header::IF_NONE_MATCH].iter().any(|name| self.has(name))
            || matches!(range, Some(ByteRange::Last(_)));
        let mut size = 0;
        if needs_entry {
            let FileLocation { sandbox, path } = &self.location;
            let follows_symlink = true;
            let stat = self.app.sandboxes.stat_file(&self.scope, sandbox, path, follows_symlink);
            let entry = stat.await?;
            if check_read(&self.headers, &entry)? == Freshness::Fresh {
                return not_modified(&entry);
            }
            size = entry.size;
        }
        let mut part = range.map_or(Ok(WHOLE), |range| part_of(range, size))?;
        let mut read = self.open(part).await?;
        if range.is_some() && !self.is_range_valid(&read.entry) {
            (range, part) = (None, WHOLE);
            read = self.open(part).await?;
        }
        if check_read(&self.headers, &read.entry)? == Freshness::Fresh {
            return not_modified(&read.entry);
        }
        let entry = read.entry.clone();
        let available = entry.size.saturating_sub(part.offset);
        let length = part.length.map_or(available, |length| length.min(available));
        if range.is_none() {
            let body = content::body(FileContent::new(read, length)).await?;
            return respond(StatusCode::OK, &entry, length, None, body);
        }
        if length == 0 {
            return Err(not_satisfiable(entry.size));
        }
        let body = content::body(FileContent::new(read, length)).await?;
        respond(StatusCode::PARTIAL_CONTENT, &entry, length, Some(part.offset), body)
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.headers.contains_key(name)
    }

    /// Returns true if a range applies: without `If-Range`, or if the client has this version of the content.
    fn is_range_valid(&self, entry: &FileEntry) -> bool {
        let known = self.headers.get(header::IF_RANGE);
        known.is_none_or(|known| known.as_bytes() == entity_tag(entry).as_bytes())
    }
}

/// Returns the part of a file that a range names. `size` is used only for a range of the last bytes, and may else be 0.
fn part_of(range: ByteRange, size: u64) -> Result<Part, ApiError> {
    match range {
        ByteRange::From(offset, None) => Ok(Part { offset, length: None }),
        ByteRange::From(offset, Some(last)) => {
            Ok(Part { offset, length: Some(last.saturating_sub(offset).saturating_add(1)) })
        }
        ByteRange::Last(0) => Err(not_satisfiable(size)),
        ByteRange::Last(length) => Ok(Part { offset: size.saturating_sub(length), length: Some(length) }),
    }
}

fn not_modified(entry: &FileEntry) -> Result<Response, ApiError> {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    add_headers(&mut response, entry)?;
    Ok(response)
}

/// Creates a response with `length` bytes of content. `offset` is that of a range; `None` for the whole file.
fn respond(
    status: StatusCode,
    entry: &FileEntry,
    length: u64,
    offset: Option<u64>,
    body: Body,
) -> Result<Response, ApiError> {
    let mut response = (status, body).into_response();
    add_headers(&mut response, entry)?;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Files of a sandbox are not trusted: a browser must not show them in the origin of the API.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(offset) = offset {
        let range = format!("bytes {offset}-{}/{}", offset + length - 1, entry.size);
        headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(range).map_err(ApiError::internal)?);
    }
    Ok(response)
}

/// Adds the headers that describe a file.
fn add_headers(response: &mut Response, entry: &FileEntry) -> Result<(), ApiError> {
    let tag = HeaderValue::try_from(entity_tag(entry)).map_err(ApiError::internal)?;
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if let Some(modified) = http_date(entry.mtime_ns) {
        headers.insert(header::LAST_MODIFIED, modified);
    }
    Ok(())
}

/// Formats a time for a header; `None` if it is out of range.
fn http_date(nanoseconds: i64) -> Option<HeaderValue> {
    let time = Timestamp::from_nanosecond(nanoseconds.into()).ok()?;
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()?;
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_parts_of_a_file() {
        for (text, expected) in [
            ("bytes=0-0", Part { offset: 0, length: Some(1) }),
            ("bytes=2-5", Part { offset: 2, length: Some(4) }),
            ("bytes=7-", Part { offset: 7, length: None }),
            ("bytes=0-18446744073709551615", Part { offset: 0, length: Some(u64::MAX) }),
            ("bytes=-3", Part { offset: 7, length: Some(3) }),
            ("bytes=-30", Part { offset: 0, length: Some(30) }),
        ] {
            assert_eq!(part_of(ByteRange::parse(text).unwrap(), 10).unwrap(), expected, "{text}");
        }
        assert!(part_of(ByteRange::Last(0), 10).is_err());
    }

    #[test]
    fn times_have_the_format_of_http() {
        assert_eq!(http_date(1_700_000_000_123_456_789).unwrap(), "Tue, 14 Nov 2023 22:13:20 GMT");
        assert!(http_date(i64::MIN).is_none_or(|text| !text.is_empty()));
    }
}
