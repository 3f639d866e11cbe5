//! Conversion of errors of the sandbox service into errors of the API.

use axum::http::{HeaderValue, header};
use serde_json::json;
use workspace_api::error::WRITTEN_DETAIL;
use workspace_api::error_codes::{self, ErrorCode};
use workspace_catalog::CatalogError;
use workspace_context::projects::ProjectError;
use workspace_sandbox::runtime::RuntimeError;
use workspace_sandbox::template::TemplateError;
use workspace_sandbox::{
    FileError, FileErrorKind, HookError, ProviderKind, SandboxError, WorkspaceError, without_host_paths,
};
use workspace_state::DirectoryError;

use crate::error::ApiError;
use crate::store::cancelled;

/// `Retry-After` in seconds while another operation on a sandbox, or on its workspace, is in progress.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// Maximum number of paths in the details of an error.
const PATHS_MAX: usize = 100;

impl From<SandboxError> for ApiError {
    fn from(error: SandboxError) -> Self {
        let message = error.to_string();
        match error {
            SandboxError::Catalog(error) => error.into(),
            SandboxError::Template(TemplateError::Full) => Self::new(error_codes::STORAGE_FULL, message),
            SandboxError::NotCompleted { id, source } => {
                let cause = Self::from(*source);
                let message = format!(
                    "the changes in sandbox `{id}` could not be completed, so it was not deleted: {}; try again, or \
                     send `complete=false` to lose them",
                    cause.message()
                );
                cause.with_message(message).detail("sandboxId", id)
            }
            error if error.is_full() => disk_full().because(message),
            SandboxError::Cancelled => cancelled(),
            SandboxError::NotFound { id } => {
                Self::new(error_codes::SANDBOX_NOT_FOUND, message).detail("sandboxId", id)
            }
            SandboxError::NotRunning { id, state, .. } => {
                Self::new(error_codes::SANDBOX_NOT_RUNNING, message)
                    .detail("sandboxId", id)
                    .detail("state", state.as_str())
            }
            SandboxError::Paused { id } => Self::new(error_codes::SANDBOX_NOT_RUNNING, message)
                .detail("sandboxId", id)
                .detail("state", "paused"),
            SandboxError::Expired { id } => {
                Self::new(error_codes::SANDBOX_EXPIRED, message).detail("sandboxId", id)
            }
            SandboxError::Busy { id, .. } | SandboxError::WorkspaceBusy { id, .. } => {
                Self::new(error_codes::SANDBOX_CONFLICT, message)
                    .detail("sandboxId", id)
                    .header(header::RETRY_AFTER, RETRY_AFTER)
            }
            SandboxError::CreationHook { source } => {
                let message =
                    "a service that uses the files of sandboxes failed; the server log has the cause";
                Self::new(error_codes::SANDBOX_CREATION_FAILED, message).because(source)
            }
            SandboxError::RemovalHook { id, source } => {
                let message = format!(
                    "the files of sandbox `{id}` may be in use; none was deleted, and the server tries again"
                );
                Self::new(error_codes::SANDBOX_OPERATION_FAILED, message)
                    .because(source)
                    .detail("sandboxId", id)
            }
            SandboxError::WorkRecorder { source } => from_recorder_error(source),
            SandboxError::Operation { id, source } => {
                let message =
                    format!("the runtime failed to operate sandbox `{id}`; the server log has the cause");
                Self::new(error_codes::SANDBOX_OPERATION_FAILED, message)
                    .because(source)
                    .detail("sandboxId", id)
            }
            SandboxError::AgentLost { id, .. } => {
                Self::new(error_codes::AGENT_UNAVAILABLE, message).detail("sandboxId", id)
            }
            SandboxError::AgentAway { id } => {
                Self::new(error_codes::AGENT_UNAVAILABLE, message).detail("sandboxId", id)
            }
            SandboxError::GuestOutdated { id } => {
                Self::new(error_codes::GUEST_OUTDATED, message).detail("sandboxId", id)
            }
            SandboxError::File(error) => from_file_error(&error),
            SandboxError::TooManyTransfers { limit, .. } => {
                Self::new(error_codes::TRANSFER_LIMIT_EXCEEDED, message).detail("limit", limit)
            }
            SandboxError::TransferMemory => Self::new(error_codes::TRANSFER_LIMIT_EXCEEDED, message),
            SandboxError::Elsewhere { id, server } => Self::new(error_codes::SANDBOX_ELSEWHERE, message)
                .detail("sandboxId", id)
                .detail("server", server),
            SandboxError::TooMany { limit, setting, .. } => {
                Self::new(error_codes::SANDBOX_LIMIT_EXCEEDED, message)
                    .detail("limit", limit)
                    .detail("setting", setting)
            }
            SandboxError::TooManyPaused { limit, .. } => {
                Self::new(error_codes::SANDBOX_LIMIT_EXCEEDED, message)
                    .detail("limit", limit)
                    .detail("setting", "MAX_PAUSED_PER_OWNER")
            }
            SandboxError::TooManySnapshots { limit, .. } => {
                Self::new(error_codes::SNAPSHOT_LIMIT_EXCEEDED, message)
                    .detail("limit", limit)
                    .detail("setting", "MAX_SNAPSHOTS_PER_OWNER")
            }
            SandboxError::SnapshotsTooLarge { bytes, limit, .. } => {
                let error = Self::new(error_codes::SNAPSHOT_LIMIT_EXCEEDED, message).detail("limit", limit);
                let error = error.detail("setting", "MAX_SNAPSHOT_BYTES_PER_OWNER");
                match bytes {
                    Some(bytes) => error.detail("bytes", bytes),
                    None => error,
                }
            }
            SandboxError::ProjectQuota { project } => {
                Self::new(error_codes::SNAPSHOT_LIMIT_EXCEEDED, message).detail("project", project)
            }
            SandboxError::NoteTooLarge { field, limit } => Self::new(error_codes::PAYLOAD_TOO_LARGE, message)
                .detail("field", field)
                .detail("limit", limit),
            SandboxError::TooManyNotes { limit, setting, .. } => {
                Self::new(error_codes::NOTE_LIMIT_EXCEEDED, message)
                    .detail("limit", limit)
                    .detail("setting", setting)
            }
            // Never the result of a request: it is stored with a command whose automatic snapshot took too long.
            SandboxError::TraceTimeout { .. } => Self::internal(message),
            SandboxError::QueueFull { waiting } => {
                let error = Self::new(error_codes::QUEUE_FULL, message).detail("waiting", waiting);
                error.detail("setting", "MAX_QUEUED_CREATIONS")
            }
            SandboxError::NameTaken { name, sandbox } => Self::new(error_codes::SANDBOX_NAME_TAKEN, message)
                .detail("name", name)
                .detail("sandboxId", sandbox),
            SandboxError::BaseUnknown { id, snapshot } => {
                let error = Self::new(error_codes::SNAPSHOT_BASE_UNKNOWN, message);
                error.detail("sandboxId", id).detail("snapshot", snapshot.to_string())
            }
            SandboxError::IdempotencyConflict { .. } => Self::new(error_codes::IDEMPOTENCY_CONFLICT, message),
            SandboxError::Invalid { field, .. } => {
                let code = match field {
                    "resources.cpu" | "resources.memory" | "resources.disk" | "resources.processes" => {
                        error_codes::RESOURCE_LIMIT_EXCEEDED
                    }
                    _ => error_codes::INVALID_REQUEST,
                };
                Self::new(code, message).detail("field", field)
            }
            SandboxError::NoTemplate { name, .. } => template_not_found(message, name),
            SandboxError::TemplateUsed { name, sandbox } => Self::new(error_codes::TEMPLATE_IN_USE, message)
                .detail("template", name)
                .detail("sandboxId", sandbox),
            SandboxError::NoImports { .. } => Self::new(error_codes::NOT_IMPLEMENTED, message),
            SandboxError::Template(error) => match error {
                TemplateError::Name { .. } | TemplateError::Archive(_) => {
                    Self::new(error_codes::INVALID_REQUEST, message)
                }
                TemplateError::Exists { name } => {
                    Self::new(error_codes::TEMPLATE_EXISTS, message).detail("template", name)
                }
                TemplateError::TooLarge { limit, .. } => Self::new(error_codes::PAYLOAD_TOO_LARGE, message)
                    .detail("limit", limit)
                    .detail("setting", "MAX_TEMPLATE"),
                TemplateError::Cancelled => Self::new(error_codes::SHUTTING_DOWN, message),
                TemplateError::Full | TemplateError::Io(_) => Self::internal(message),
            },
            SandboxError::Lifetime { limit, left } => Self::new(error_codes::LIFETIME_EXCEEDED, message)
                .detail("limitSeconds", limit)
                .detail("leftSeconds", left)
                .detail("setting", "MAX_SANDBOX_LIFETIME"),
            SandboxError::NoCommand { id } => {
                Self::new(error_codes::COMMAND_NOT_FOUND, message).detail("commandId", id)
            }
            SandboxError::CommandEnded { id } => {
                Self::new(error_codes::COMMAND_NOT_RUNNING, message).detail("commandId", id)
            }
            SandboxError::InputClosed { id } => {
                Self::new(error_codes::STDIN_CLOSED, message).detail("commandId", id)
            }
            SandboxError::InputLost { id } => {
                Self::new(error_codes::STDIN_UNCERTAIN, message).detail("commandId", id)
            }
            SandboxError::InputFull { id, written } => Self::new(error_codes::STDIN_FULL, message)
                .detail("commandId", id)
                .detail(WRITTEN_DETAIL, written),
            SandboxError::NoTerminal { id } => {
                Self::new(error_codes::PTY_NOT_FOUND, message).detail("ptyId", id)
            }
            SandboxError::TooManyTerminals { limit } => {
                let error = Self::new(error_codes::PTY_LIMIT_EXCEEDED, message).detail("limit", limit);
                error.detail("setting", "MAX_TERMINALS")
            }
            SandboxError::TooManyCommands { limit } => {
                let error = Self::new(error_codes::COMMAND_LIMIT_EXCEEDED, message).detail("limit", limit);
                error.detail("setting", "MAX_COMMANDS")
            }
            SandboxError::OutputGone { id } => {
                Self::new(error_codes::OUTPUT_UNAVAILABLE, message).detail("commandId", id)
            }
            // The guest agent failed.
            SandboxError::Refused { .. } => Self::new(error_codes::SANDBOX_CREATION_FAILED, message),
            SandboxError::Runtime(error) => from_runtime_error(error, message),
            SandboxError::WorkspaceUsed { id, processes } => {
                Self::new(error_codes::WORKSPACE_IN_USE, message)
                    .detail("sandboxId", id)
                    .detail("processes", json!(processes))
            }
            SandboxError::Recipe(error) => {
                let line = error.line;
                Self::new(error_codes::INVALID_REQUEST, message)
                    .detail("field", "recipe")
                    .detail("line", line)
            }
            SandboxError::BuildFailed { step, line, exit_code, .. } => {
                let error = Self::new(error_codes::BUILD_FAILED, message).detail("step", step);
                error.detail("line", line).detail("exitCode", exit_code)
            }
            SandboxError::BuildTimeout { seconds } => Self::new(error_codes::BUILD_FAILED, message)
                .detail("limitSeconds", seconds)
                .detail("setting", "BUILD_TIMEOUT"),
            SandboxError::RootUnavailable { .. } => Self::new(error_codes::ROOT_UNAVAILABLE, message),
            SandboxError::FollowUnavailable { .. } => Self::new(error_codes::PROVIDER_UNAVAILABLE, message),
            SandboxError::RebaseUnavailable { .. } => Self::new(error_codes::PROVIDER_UNAVAILABLE, message),
            SandboxError::NoProject { id } => {
                Self::new(error_codes::SANDBOX_WITHOUT_PROJECT, message).detail("sandboxId", id)
            }
            SandboxError::ReadOnly { id, .. } => {
                Self::new(error_codes::WORKSPACE_READ_ONLY, message).detail("sandboxId", id)
            }
            SandboxError::UserUnavailable { user } => {
                Self::new(error_codes::USER_UNAVAILABLE, message).detail("user", user)
            }
            SandboxError::RootUsed { id, count } => {
                let error = Self::new(error_codes::WORKSPACE_IN_USE, message).detail("sandboxId", id);
                error.detail("commands", count)
            }
            SandboxError::Workspace(error) => from_workspace_error(error, &message),
            other => Self::internal(other),
        }
    }
}

/// Converts a failed operation on files or ports. The path is one inside the sandbox.
pub(crate) fn from_file_error(error: &FileError) -> ApiError {
    let mapped = ApiError::new(file_error_code(error.kind), error.to_string());
    if error.path.is_empty() { mapped } else { mapped.detail("path", error.path.clone()) }
}

fn file_error_code(kind: FileErrorKind) -> ErrorCode {
    match kind {
        FileErrorKind::NotFound => error_codes::PATH_NOT_FOUND,
        FileErrorKind::IsADirectory | FileErrorKind::NotAFile => error_codes::NOT_A_FILE,
        FileErrorKind::PermissionDenied => error_codes::FILE_DENIED,
        FileErrorKind::Invalid => error_codes::INVALID_REQUEST,
        FileErrorKind::PreconditionFailed => error_codes::PRECONDITION_FAILED,
        FileErrorKind::NoSpace => error_codes::DISK_LIMIT_EXCEEDED,
        FileErrorKind::LimitExceeded => error_codes::TREE_TOO_LARGE,
        FileErrorKind::TimedOut => error_codes::AGENT_UNAVAILABLE,
        FileErrorKind::NotListening => error_codes::PORT_NOT_LISTENING,
        FileErrorKind::Unsupported => error_codes::GUEST_OUTDATED,
        // The others depend on the files, too: a file system may not support an operation.
        _ => error_codes::FILE_CONFLICT,
    }
}

/// Returns true if the disk or a quota is full.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Converts the error of a completion that could not be recorded.
fn from_recorder_error(error: HookError) -> ApiError {
    let other = |cause: &dyn std::fmt::Display| {
        let message = "the completion could not be recorded; the server log has the cause";
        ApiError::new(error_codes::SANDBOX_OPERATION_FAILED, message).because(cause)
    };
    let failure = match error {
        HookError::Failed(failure) => failure,
        timed_out => return other(&timed_out),
    };
    let failure = match failure.downcast::<CatalogError>() {
        Ok(error) => return (*error).into(),
        Err(failure) => failure,
    };
    match failure.downcast::<ProjectError>() {
        Ok(error) => (*error).into(),
        Err(failure) => other(&failure),
    }
}

pub(crate) fn disk_full() -> ApiError {
    ApiError::new(error_codes::STORAGE_FULL, "the server's disk is full; free disk space, and try again")
}

fn from_runtime_error(error: RuntimeError, message: String) -> ApiError {
    // The message may contain paths of the host, which only the log may have.
    let error_with = |code| ApiError::new(code, without_host_paths(&message)).because(&message);
    match error {
        RuntimeError::Unavailable { runtime, .. } => {
            error_with(error_codes::RUNTIME_UNAVAILABLE).detail("runtime", runtime)
        }
        RuntimeError::Isolation(_) => error_with(error_codes::ISOLATION_UNAVAILABLE),
        RuntimeError::Network(_) => error_with(error_codes::NETWORK_UNAVAILABLE),
        RuntimeError::NoTemplate { name, .. } => template_not_found(message, name),
        RuntimeError::TemplateNotPresent { name, fetch_command, .. } => {
            ApiError::new(error_codes::TEMPLATE_UNAVAILABLE, message)
                .detail("template", name)
                .detail("fetch", fetch_command)
        }
        other => ApiError::new(error_codes::SANDBOX_CREATION_FAILED, "the runtime failed").because(other),
    }
}

fn from_workspace_error(error: WorkspaceError, message: &str) -> ApiError {
    let message = without_host_paths(message);
    match error {
        WorkspaceError::UnknownSnapshot(id) => {
            ApiError::new(error_codes::SNAPSHOT_NOT_FOUND, message).detail("snapshot", id.to_string())
        }
        WorkspaceError::Provider { provider, .. } => {
            ApiError::new(error_codes::PROVIDER_UNAVAILABLE, message).detail("provider", provider.to_string())
        }
        WorkspaceError::NotFound { .. }
        | WorkspaceError::Unusable { .. }
        | WorkspaceError::UnusableAnchor { .. } => ApiError::new(error_codes::WORKSPACE_UNUSABLE, message),
        // Only the overlay provider can load files lazily. It falls back to others unless `lazy` was requested.
        WorkspaceError::Lazy(_) => ApiError::new(error_codes::PROVIDER_UNAVAILABLE, message)
            .detail("provider", ProviderKind::Overlay.to_string())
            .detail("materialize", "lazy"),
        error if error.is_changing() => {
            ApiError::new(error_codes::WORKSPACE_CHANGING, message).header(header::RETRY_AFTER, RETRY_AFTER)
        }
        WorkspaceError::Directory(DirectoryError::Incomplete { skipped, .. }) => {
            let paths: Vec<_> =
                skipped.iter().take(PATHS_MAX).map(|one| one.path.to_string_lossy()).collect();
            ApiError::new(error_codes::WORKSPACE_UNREADABLE, message).detail("paths", paths)
        }
        error if error.is_too_deep() => ApiError::new(error_codes::WORKSPACE_TOO_DEEP, message)
            .detail("limit", workspace_state::DEPTH_MAX),
        other => match other.exceeded() {
            Some(exceeded) => {
                ApiError::new(error_codes::WORKSPACE_TOO_LARGE, message).detail("limit", exceeded.limit)
            }
            None => ApiError::internal(other),
        },
    }
}

fn template_not_found(message: String, name: String) -> ApiError {
    ApiError::new(error_codes::TEMPLATE_NOT_FOUND, message).detail("template", name)
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use workspace_sandbox::HookError;

    use super::*;

    #[test]
    fn busy_sandboxes_and_workspaces_are_conflicts_that_can_be_retried() {
        let id = || "sbx-1".to_owned();
        for error in [
            SandboxError::Busy { id: id(), seconds: 60 },
            SandboxError::WorkspaceBusy { id: id(), seconds: 5 },
        ] {
            let response = ApiError::from(error).into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], "1");
            let error = response.extensions().get::<ApiError>().unwrap();
            assert_eq!(error.code(), error_codes::SANDBOX_CONFLICT);
        }
    }

    #[test]
    fn failures_of_file_operations_have_their_own_codes() {
        for (kind, code) in [
            (FileErrorKind::NotFound, error_codes::PATH_NOT_FOUND),
            (FileErrorKind::AlreadyExists, error_codes::FILE_CONFLICT),
            (FileErrorKind::NotADirectory, error_codes::FILE_CONFLICT),
            (FileErrorKind::IsADirectory, error_codes::NOT_A_FILE),
            (FileErrorKind::NotEmpty, error_codes::FILE_CONFLICT),
            (FileErrorKind::PermissionDenied, error_codes::FILE_DENIED),
            (FileErrorKind::Invalid, error_codes::INVALID_REQUEST),
            (FileErrorKind::NotAFile, error_codes::NOT_A_FILE),
            (FileErrorKind::PreconditionFailed, error_codes::PRECONDITION_FAILED),
            (FileErrorKind::NoSpace, error_codes::DISK_LIMIT_EXCEEDED),
            (FileErrorKind::LimitExceeded, error_codes::TREE_TOO_LARGE),
            (FileErrorKind::TimedOut, error_codes::AGENT_UNAVAILABLE),
            (FileErrorKind::NotListening, error_codes::PORT_NOT_LISTENING),
            (FileErrorKind::Unsupported, error_codes::GUEST_OUTDATED),
            (FileErrorKind::Other, error_codes::FILE_CONFLICT),
        ] {
            let error = FileError { kind, path: "/etc/x".to_owned(), message: "a reason".to_owned() };
            let mapped = ApiError::from(SandboxError::File(error));
            assert_eq!((mapped.code(), mapped.message()), (code, "/etc/x: a reason"), "{kind:?}");
            assert_eq!(mapped.body("id").error.details["path"], "/etc/x");
        }
        let outdated = ApiError::from(SandboxError::GuestOutdated { id: "sbx-1".to_owned() });
        assert_eq!(outdated.code(), error_codes::GUEST_OUTDATED);
        let many = ApiError::from(SandboxError::TooManyTransfers { what: "watches", limit: 16 });
        assert_eq!(many.code(), error_codes::TRANSFER_LIMIT_EXCEEDED);
        assert_eq!(many.body("id").error.details["limit"], 16);
    }

    #[test]
    fn failures_of_hooks_are_only_logged() {
        let failed = || HookError::Failed("cannot read /srv/data/exports".into());
        for (error, code) in [
            (SandboxError::CreationHook { source: failed() }, error_codes::SANDBOX_CREATION_FAILED),
            (
                SandboxError::RemovalHook { id: "sbx-1".to_owned(), source: failed() },
                error_codes::SANDBOX_OPERATION_FAILED,
            ),
        ] {
            let mapped = ApiError::from(error);
            assert_eq!(mapped.code(), code);
            assert!(!mapped.message().contains("/srv"), "{mapped:?}");
            assert!(mapped.cause().is_some_and(|cause| cause.contains("/srv/data")), "{mapped:?}");
        }
    }

    #[test]
    fn errors_of_the_runtime_name_no_paths_of_the_host() {
        let reason = "the guest agent /srv/data/workspace-agent does not exist".to_owned();
        for error in [
            RuntimeError::Unavailable { runtime: "embedded", reason: reason.clone() },
            RuntimeError::Isolation(reason.clone()),
            RuntimeError::Network(reason.clone()),
        ] {
            let mapped = ApiError::from(SandboxError::Runtime(error));
            assert!(
                !mapped.message().contains("/srv") && mapped.message().contains("guest agent"),
                "{mapped:?}"
            );
            assert!(mapped.cause().is_some_and(|cause| cause.contains("/srv/data")), "{mapped:?}");
        }
    }
}
