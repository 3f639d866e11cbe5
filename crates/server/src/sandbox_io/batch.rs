//! `POST /api/v1/sandboxes/{id}/files`: several changes at once; and the removal of one file.

use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use workspace_api::error::ErrorBody;
use workspace_api::files::{FailedOperation, FileBatch, FileBatchResult, FileOperation, RemoveFileQuery};
use workspace_sandbox::{FileCondition, FileOperation as SandboxOperation, NewFile, SandboxError};

use super::conditions::parse_tag;
use super::conversion::{invalid, parse_mode, parse_path};
use super::location::FileLocation;
use crate::app::App;
use crate::audit::Entry;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::error_mapping::from_file_error;
use crate::extract::{Json, Path, Query};
use crate::request_id::RequestId;

/// Maximum size of a batch in bytes.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of operations in a batch.
const OPERATIONS_MAX: usize = 1_000;

/// Change several files.
///
/// Operations are performed in order. The first that fails ends the batch; earlier ones are not undone. No commit of
/// the sandbox happens in the middle of a batch. The body has at most 1 MiB.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/files", tag = "files", operation_id = "change_files",
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = FileBatch, responses(
    (status = 200, description = "Result, also if an operation failed", body = FileBatchResult),
    (status = "default", description = "Error; with `AGENT_UNAVAILABLE`, some operations may have been performed", body = ErrorBody),
))]
pub(super) async fn run(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    Path(id): Path<String>,
    Json(body): Json<FileBatch>,
) -> Result<Json<FileBatchResult>, ApiError> {
    if body.operations.len() > OPERATIONS_MAX {
        return Err(invalid("operations", &format!("a batch has at most {OPERATIONS_MAX} operations")));
    }
    let operations = body.operations.into_iter().enumerate();
    let operations: Vec<SandboxOperation> = operations
        .map(|(index, operation)| OperationIndex(index).convert(operation))
        .collect::<Result<_, _>>()?;
    let count = operations.len();
    let result = app.sandboxes.file_batch(&scope(&caller), &id, operations).await?;
    // The I/O worker in the sandbox reports this number, and may report a wrong one.
    let completed = result.completed.min(count);
    let details = json!({ "operations": count, "completed": completed });
    app.audit.record(Entry {
        sandbox_id: Some(id),
        ..Entry::for_caller("files.changed", &caller, &request, details)
    });
    let failed = result.failure.map(|failure| FailedOperation {
        index: completed,
        error: from_file_error(&failure).body(&request.0).error,
    });
    Ok(Json(FileBatchResult { completed, failed }))
}

/// Remove a file or directory.
///
/// A symlink itself is removed, not its target.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}/files/{path}", tag = "files", operation_id = "remove_file",
    params(("id" = String, Path, description = "Id of the sandbox"), ("path" = String, Path, description = "Path in the sandbox without its first slash. Slashes may be encoded as `%2F`, other bytes as `%XX`"), RemoveFileQuery),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    request: RequestId,
    location: FileLocation,
    Query(query): Query<RemoveFileQuery>,
) -> Result<StatusCode, ApiError> {
    let FileLocation { sandbox, path } = location;
    let details = json!({ "path": path.to_string(), "recursive": query.recursive });
    let remove = SandboxOperation::Remove { path, recursive: query.recursive, force: false };
    let result = app.sandboxes.file_batch(&scope(&caller), &sandbox, vec![remove]).await?;
    if let Some(failure) = result.failure {
        return Err(SandboxError::File(failure).into());
    }
    app.audit.record(Entry {
        sandbox_id: Some(sandbox),
        ..Entry::for_caller("file.removed", &caller, &request, details)
    });
    Ok(StatusCode::NO_CONTENT)
}

/// Index of an operation in its batch, for the names of its fields in errors.
#[derive(Clone, Copy)]
struct OperationIndex(usize);

impl OperationIndex {
    /// Returns the name of a field of the operation, such as `operations[7].path`.
    fn field_name(self, field: &str) -> String {
        format!("operations[{}].{field}", self.0)
    }

    fn convert(self, operation: FileOperation) -> Result<SandboxOperation, ApiError> {
        let path = |text: &str, field: &str| parse_path(text, &self.field_name(field));
        let mode = |text: &str| parse_mode(text, &self.field_name("mode"));
        Ok(match operation {
            FileOperation::Mkdir { path: text, mode: bits, parents } => SandboxOperation::Mkdir {
                path: path(&text, "path")?,
                mode: bits.as_deref().map(mode).transpose()?,
                parents,
            },
            FileOperation::Move { from, to, replace } => {
                SandboxOperation::Move { from: path(&from, "from")?, to: path(&to, "to")?, replace }
            }
            FileOperation::Copy { from, to, replace, recursive } => {
                let (from, to) = (path(&from, "from")?, path(&to, "to")?);
                SandboxOperation::Copy { from, to, replace, recursive }
            }
            FileOperation::Chmod { path: text, mode: bits } => {
                SandboxOperation::Chmod { path: path(&text, "path")?, mode: mode(&bits)? }
            }
            FileOperation::Remove { path: text, recursive, force } => {
                SandboxOperation::Remove { path: path(&text, "path")?, recursive, force }
            }
            FileOperation::Write {
                path: name,
                text,
                base64,
                mode: bits,
                mkdirs,
                if_match,
                if_none_match,
            } => SandboxOperation::Write {
                file: NewFile {
                    path: path(&name, "path")?,
                    mode: bits.as_deref().map(mode).transpose()?,
                    mkdirs,
                    condition: self.condition(if_match.as_deref(), if_none_match.as_deref())?,
                },
                content: self.content(text, base64)?.into(),
            },
        })
    }

    fn content(self, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, ApiError> {
        match (text, base64) {
            (Some(_), Some(_)) => Err(invalid(&self.field_name("base64"), "send either `text` or `base64`")),
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(base64)) => BASE64_STANDARD
                .decode(base64)
                .map_err(|_| invalid(&self.field_name("base64"), "this is not base64")),
            (None, None) => Ok(Vec::new()),
        }
    }

    fn condition(
        self,
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Result<Option<FileCondition>, ApiError> {
        match (if_match, if_none_match) {
            (None, None) => Ok(None),
            (None, Some("*")) => Ok(Some(FileCondition::Absent)),
            (None, Some(_)) => Err(invalid(&self.field_name("ifNoneMatch"), "only `*` is supported")),
            (Some("*"), None) => Ok(Some(FileCondition::Exists)),
            (Some(tag), None) => match parse_tag(tag) {
                Some(fingerprint) => Ok(Some(FileCondition::Unchanged(fingerprint))),
                None => Err(invalid(&self.field_name("ifMatch"), "this is not the `etag` of a file")),
            },
            (Some(_), Some(_)) => {
                Err(invalid(&self.field_name("ifNoneMatch"), "send either `ifMatch` or `ifNoneMatch`"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use workspace_api::error_codes;

    use super::*;

    fn convert(operation: Value) -> Result<SandboxOperation, ApiError> {
        OperationIndex(7).convert(serde_json::from_value(operation).unwrap())
    }

    #[test]
    fn fields_of_operations_are_checked() {
        for (operation, field) in [
            (json!({"op": "mkdir", "path": "relative"}), "path"),
            (json!({"op": "mkdir", "path": "/a", "mode": "9"}), "mode"),
            (json!({"op": "move", "from": "/a", "to": "/../b"}), "to"),
            (json!({"op": "copy", "from": "", "to": "/b"}), "from"),
            (json!({"op": "chmod", "path": "/a", "mode": "rwx"}), "mode"),
            (json!({"op": "write", "path": "/a", "text": "", "base64": ""}), "base64"),
            (json!({"op": "write", "path": "/a", "base64": "%"}), "base64"),
            (json!({"op": "write", "path": "/a", "ifMatch": "abc"}), "ifMatch"),
            (json!({"op": "write", "path": "/a", "ifNoneMatch": "\"1-2-3-4\""}), "ifNoneMatch"),
            (json!({"op": "write", "path": "/a", "ifMatch": "*", "ifNoneMatch": "*"}), "ifNoneMatch"),
        ] {
            let refused = convert(operation.clone()).unwrap_err();
            assert_eq!(refused.code(), error_codes::INVALID_REQUEST, "{operation}");
            assert_eq!(refused.body("id").error.details["field"], format!("operations[7].{field}"));
        }
    }

    #[test]
    fn content_is_text_or_base64() {
        for (operation, expected) in [
            (json!({"op": "write", "path": "/a", "text": "\u{e9}"}), &b"\xc3\xa9"[..]),
            (json!({"op": "write", "path": "/a", "base64": "/wA="}), b"\xff\0"),
            // A path in quotes has octal escapes for bytes that are not UTF-8.
            (json!({"op": "write", "path": "\"/\\377\""}), b""),
        ] {
            let Ok(SandboxOperation::Write { content, .. }) = convert(operation.clone()) else {
                panic!("{operation}");
            };
            assert_eq!(content, expected, "{operation}");
        }
    }
}
