//! `/api/v1/sandboxes/{id}/entries/{path}`: entries and listings of directories.

use axum::extract::State;
use workspace_api::error::ErrorBody;
use workspace_api::files::{FileListing, ListFilesQuery};
use workspace_api::snapshots::PageQuery;
use workspace_sandbox::{FileEntry, FileErrorKind, FileKind, SandboxError};

use super::conversion::{entry_to_api, invalid};
use super::location::FileLocation;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Query};
use crate::snapshots::{check_page, page_offset};

/// Maximum depth of a listing.
const DEPTH_MAX: u32 = 32;

/// Get an entry of a sandbox; of a directory, also a page of the entries below it.
///
/// Entries below a directory are ordered by path, down to `depth` levels; symlinks below it are not followed. Entries
/// that cannot be examined, such as those of a directory with mode 0444, are left out, but count. A listing of more than
/// 100,000 entries fails with `TREE_TOO_LARGE`.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/entries/{path}", tag = "files", operation_id = "list_files",
    params(("id" = String, Path, description = "Id of the sandbox"), ("path" = String, Path, description = "Path in the sandbox without its first slash. Slashes may be encoded as `%2F`, other bytes as `%XX`"), ListFilesQuery),
    responses(
        (status = 200, description = "Entry", body = FileListing),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    location: FileLocation,
    Query(query): Query<ListFilesQuery>,
) -> Result<Json<FileListing>, ApiError> {
    let (page, limit) = check_page(&PageQuery { page: query.page, limit: query.limit })?;
    let depth = query.depth.unwrap_or(1);
    if !(1..=DEPTH_MAX).contains(&depth) {
        return Err(invalid("depth", &format!("must be between 1 and {DEPTH_MAX}")));
    }
    let (scope, FileLocation { sandbox, path }) = (scope(&caller), location);
    if query.follow == Some(false) {
        let follows_symlink = false;
        let entry = app.sandboxes.stat_file(&scope, &sandbox, &path, follows_symlink).await?;
        if entry.kind != FileKind::Directory {
            return Ok(Json(single(&entry, page, limit)?));
        }
    }
    let range = (page_offset(page, limit) as u64, limit);
    let listing = match app.sandboxes.list_files(&scope, &sandbox, &path, depth, range).await {
        // The path is that of a file. If instead a component before the last is not a directory, `stat_file` fails.
        Err(SandboxError::File(error)) if error.kind == FileErrorKind::NotADirectory => {
            let follows_symlink = true;
            let entry = app.sandboxes.stat_file(&scope, &sandbox, &path, follows_symlink).await?;
            return Ok(Json(single(&entry, page, limit)?));
        }
        listing => listing?,
    };
    let items = listing.entries.iter().map(entry_to_api).collect::<Result<_, _>>()?;
    let entry = entry_to_api(&listing.directory)?;
    Ok(Json(FileListing { entry, items: Some(items), total: listing.total, page, limit }))
}

/// Returns the listing of an entry that is not a directory.
fn single(entry: &FileEntry, page: u32, limit: u32) -> Result<FileListing, ApiError> {
    Ok(FileListing { entry: entry_to_api(entry)?, items: None, total: 0, page, limit })
}
