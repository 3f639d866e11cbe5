//! `PUT /api/v1/sandboxes/{id}/files/{path}`: writing files. Only a few pieces of the body are in memory at a time.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use http_body::Body as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::files::{WriteFileQuery, WriteResult};
use workspace_sandbox::{FileEntry, NewFile, SandboxError, Scope};

use super::archive_upload;
use super::conditions::WriteCondition;
use super::conversion::{entry_to_api, invalid, parse_mode};
use super::location::FileLocation;
use super::query::FileQuery;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::Json;
use crate::request_id::RequestId;

/// Timeout for receiving the next piece of a file.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size in bytes of a file that is written in one request to the sandbox.
const SMALL_FILE_MAX: u64 = 64 << 10;
/// Maximum number of bytes of a refused file that are received, and the time for that. A client that is disconnected
/// while it sends does not get the error.
const DISCARDED_MAX: u64 = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Write a file, or an archive into a directory.
///
/// The file is replaced atomically when the whole body has arrived and is on disk: a client that disconnects earlier
/// leaves the old file. A symlink is followed inside the sandbox. With `archive=tar`, the body is a tar archive,
/// which may be compressed with gzip or zstd; its files replace others one by one, so a failed request may leave some
/// of them.
#[utoipa::path(put, path = "/api/v1/sandboxes/{id}/files/{path}", tag = "files", operation_id = "write_file",
    params(
        ("id" = String, Path, description = "Id of the sandbox"),
        ("path" = String, Path, description = "Path in the sandbox without its first slash. Slashes may be encoded as `%2F`, other bytes as `%XX`"),
        WriteFileQuery,
        ("If-Match" = Option<String>, Header, description = "`ETag` that the present file must have, or `*` if it must exist. Else `PRECONDITION_FAILED`"),
        ("If-None-Match" = Option<String>, Header, description = "`*` if there must be no file. Else `PRECONDITION_FAILED`"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
        (status = 200, description = "Written file, or summary of the archive", body = WriteResult),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    location: FileLocation,
    FileQuery(query): FileQuery<WriteFileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<WriteResult>, ApiError> {
    let (scope, max) = (scope(&caller), app.settings.max_upload.0);
    let max = caller.upload_max().map_or(max, |signed| signed.min(max));
    let condition = WriteCondition::parse(&headers)?;
    let mode = query.mode.as_deref().map(|mode| parse_mode(mode, "mode")).transpose()?;
    let expects_continue = headers.contains_key(header::EXPECT);
    let record = |event, details: Value| {
        let sandbox_id = Some(location.sandbox.clone());
        app.audit.record(Entry { sandbox_id, ..Entry::for_caller(event, &caller, &request, details) });
    };
    if query.archive.is_some() {
        if mode.is_some() || condition != WriteCondition::None {
            return Err(invalid("archive", "an archive cannot be combined with a mode or a condition"));
        }
        let target = archive_upload::TargetDirectory {
            scope: &scope,
            location: &location,
            mkdirs: query.mkdirs,
            expects_continue,
        };
        let result = archive_upload::receive(&app, &caller.owner, target, body, max).await?;
        let path = location.path.to_string();
        record("tree.written", json!({ "path": path, "files": result.files, "bytes": result.bytes }));
        return Ok(Json(WriteResult::Archive(result)));
    }
    let FileLocation { sandbox, path } = &location;
    let condition = condition.resolve(&app.sandboxes, &scope, sandbox, path).await?;
    let file = NewFile { path: path.clone(), mode, mkdirs: query.mkdirs, condition };
    let mut upload = Upload::new(body, max);
    let received = timeout(app.settings.upload_timeout, upload.receive(&app, &scope, sandbox, &file)).await;
    let received = received.unwrap_or_else(|_| Err(UploadError::Broken(too_slow())));
    let entry = match received {
        Ok(entry) => entry,
        Err(UploadError::Broken(error)) => return Err(error),
        Err(UploadError::Refused(error)) => {
            if !expects_continue || upload.received > 0 {
                discard(&mut upload.pieces).await;
            }
            return Err(error);
        }
    };
    record("file.written", json!({ "path": path.to_string(), "bytes": entry.size }));
    Ok(Json(WriteResult::File(entry_to_api(&entry)?)))
}

/// Failed upload.
enum UploadError {
    /// The body was not received.
    Broken(ApiError),
    /// The server or the sandbox refused the file. The client may still be sending it.
    Refused(ApiError),
}

impl From<SandboxError> for UploadError {
    fn from(error: SandboxError) -> Self {
        Self::Refused(error.into())
    }
}

/// Body of a request, which is a file.
struct Upload {
    pieces: BodyDataStream,
    /// Length of the body; `None` if it is not known.
    length: Option<u64>,
    max: u64,
    received: u64,
}

impl Upload {
    fn new(body: Body, max: u64) -> Self {
        let length = body.size_hint().exact();
        Self { pieces: body.into_data_stream(), length, max, received: 0 }
    }

    /// Writes the body to a file of the sandbox.
    async fn receive(
        &mut self,
        app: &App,
        scope: &Scope,
        sandbox: &str,
        file: &NewFile,
    ) -> Result<FileEntry, UploadError> {
        if self.length.is_some_and(|length| length > self.max) {
            return Err(UploadError::Refused(too_large(self.max)));
        }
        if self.length.is_some_and(|length| length <= SMALL_FILE_MAX) {
            let mut content = Vec::new();
            while let Some(piece) = self.next_piece().await? {
                content.extend_from_slice(&piece);
            }
            return Ok(app.sandboxes.write_file(scope, sandbox, file, content.into()).await?);
        }
        let mut write = app.sandboxes.start_write(scope, sandbox, file).await?;
        while let Some(piece) = self.next_piece().await? {
            write.append(piece).await?;
        }
        Ok(write.finish().await?)
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, UploadError> {
        let next = timeout(IDLE_TIMEOUT, self.pieces.next()).await;
        let Some(piece) = next.map_err(|_| UploadError::Broken(too_slow()))? else { return Ok(None) };
        let broken = |_| ApiError::new(error_codes::INVALID_REQUEST, "the body is incomplete");
        let piece = piece.map_err(|error| UploadError::Broken(broken(error)))?;
        self.received += piece.len() as u64;
        if self.received > self.max {
            return Err(UploadError::Refused(too_large(self.max)));
        }
        Ok(Some(piece))
    }
}

/// Receives the rest of a body that was refused, up to a limit.
pub(super) async fn discard(pieces: &mut BodyDataStream) {
    let discarded = async {
        let mut bytes = 0;
        while let Some(Ok(piece)) = pieces.next().await {
            bytes += piece.len() as u64;
            if bytes > DISCARDED_MAX {
                return;
            }
        }
    };
    // An error means that the client is slow.
    drop(timeout(DISCARD_TIMEOUT, discarded).await);
}

fn too_slow() -> ApiError {
    ApiError::new(error_codes::REQUEST_TIMEOUT, "the file was not received in time")
}

fn too_large(max: u64) -> ApiError {
    ApiError::new(error_codes::PAYLOAD_TOO_LARGE, format!("the file has more than {max} bytes"))
        .detail("limit", max)
        .detail("setting", "MAX_UPLOAD")
}
