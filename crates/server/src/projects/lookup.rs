//! Lookup of projects, and checks that their routes share.

use workspace_api::error_codes;
use workspace_api::revision::Revision;
use workspace_catalog::Project;
use workspace_state::{Snapshot, unquote_path};

use super::conversion::sequence_number;
use crate::app::App;
use crate::caller::Caller;
use crate::error::ApiError;

const LIMIT_DEFAULT: u32 = 100;
const LIMIT_MAX: u32 = 1_000;
/// Maximum length of a message for the history in bytes.
const MESSAGE_MAX: usize = 64 << 10;

/// Returns the project of the caller's owner with that name or id; for an admin, of any owner by id.
pub(super) async fn find(app: &App, caller: &Caller, project: &str) -> Result<Project, ApiError> {
    if caller.is_admin()
        && let Some(found) = app.catalog.projects().get(project).await?
    {
        return Ok(found);
    }
    Ok(app.projects.find(&caller.owner, project).await?)
}

/// Returns the sequence that a revision names. A number may be one that the project does not have.
pub(super) async fn sequence_of(app: &App, project: &Project, revision: &Revision) -> Result<i64, ApiError> {
    match revision {
        Revision::Sequence(sequence) => sequence_number(*sequence),
        Revision::Snapshot(id) => Ok(app.projects.sequence_of(project, id).await?),
    }
}

/// Returns the snapshot with the files of a project, of the present head or of a former one; `None` if it was empty.
pub(super) async fn head_at(
    app: &App,
    project: &Project,
    at: Option<&Revision>,
) -> Result<Option<Snapshot>, ApiError> {
    let at = match at {
        Some(revision) => Some(sequence_of(app, project, revision).await?),
        None => None,
    };
    Ok(app.projects.head(project, at).await?)
}

pub(super) fn check_limit(limit: Option<u32>) -> Result<u32, ApiError> {
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    let message = format!("limit must be between 1 and {LIMIT_MAX}");
    Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "limit"))
}

/// Fails if a message cannot be stored.
pub(super) fn check_message(message: &str) -> Result<(), ApiError> {
    if message.len() <= MESSAGE_MAX && !message.contains('\0') {
        return Ok(());
    }
    let text = format!("the message must have at most {MESSAGE_MAX} bytes, and no NUL");
    Err(ApiError::new(error_codes::INVALID_REQUEST, text).detail("field", "message"))
}

/// Parses a path in a project, which may be quoted.
pub(super) fn parse_path(text: &str) -> Result<Vec<u8>, ApiError> {
    match unquote_path(text) {
        Some(path) if !path.is_empty() => Ok(path.into_owned()),
        _ => {
            let message = "the path is empty, or its quotes are not closed";
            Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "path"))
        }
    }
}
