//! Author and origin of imported files.

use workspace_api::error_codes;
use workspace_api::projects::ImportQuery;
use workspace_context::projects::{ChangeAuthor, ImportOrigin};

use super::person;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::time;

/// Maximum length of the name of an author in bytes.
const AUTHOR_MAX: usize = 256;

/// Returns the author of an import: the one that the request names, such as that of a commit, or the caller. The audit
/// log has the caller in any case.
pub(super) fn import_author(query: &ImportQuery, caller: &Caller) -> Result<ChangeAuthor, ApiError> {
    let mut author = person(caller);
    if let Some(name) = &query.author {
        if name.is_empty() || name.len() > AUTHOR_MAX || name.contains(char::is_control) {
            let message = format!("the author must have 1 to {AUTHOR_MAX} bytes, and no control characters");
            return Err(invalid("author", message));
        }
        author.name.clone_from(name);
    }
    Ok(author)
}

/// Returns the commit that an import is made from.
pub(super) fn import_origin(query: &ImportQuery) -> Result<Option<ImportOrigin>, ApiError> {
    let commit_time = match query.commit_time.as_deref().map(time::parse) {
        Some(None) => {
            return Err(invalid("commitTime", "the time of the commit must be in RFC 3339".to_owned()));
        }
        time => time.flatten(),
    };
    let Some(commit) = query.commit.clone() else { return Ok(None) };
    if !matches!(commit.len(), 40 | 64) || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(invalid("commit", "the commit must be its full id in hexadecimal digits".to_owned()));
    }
    Ok(Some(ImportOrigin { commit, commit_time }))
}

fn invalid(field: &'static str, message: String) -> ApiError {
    ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", field)
}
