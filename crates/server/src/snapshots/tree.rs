//! `/api/v1/snapshots/{id}/tree`: directories and entries.

use axum::extract::State;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::snapshots::{PageQuery, TreeListing};
use workspace_state::{Entry, Node, Snapshot, Store, StoreError, Tree, TreePath, quote_path};

use super::conversion::{check_page, entry_to_api, page_offset};
use super::tree_location::TreeLocation;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Query};
use crate::store::{snapshot_not_found, with_store};

/// List the root directory of a snapshot.
#[utoipa::path(get, path = "/api/v1/snapshots/{id}/tree", tag = "snapshots", operation_id = "get_snapshot_root",
    params(("id" = String, Path, description = "Full id of the snapshot"), PageQuery), responses(
    (status = 200, description = "Root directory with a page of its entries", body = TreeListing),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn root(
    state: State<App>,
    caller: Caller,
    location: TreeLocation,
    query: Query<PageQuery>,
) -> Result<Json<TreeListing>, ApiError> {
    list(state, caller, location, query).await
}

/// Get an entry of a snapshot.
///
/// For a directory, the response has a page of its entries. Symlinks are not followed.
#[utoipa::path(get, path = "/api/v1/snapshots/{id}/tree/{path}", tag = "snapshots", operation_id = "get_snapshot_tree",
    params(("id" = String, Path, description = "Full id of the snapshot"), ("path" = String, Path, description = "Path in the snapshot. Slashes may be encoded as `%2F`, other bytes as `%XX`"), PageQuery),
    responses(
        (status = 200, description = "Entry", body = TreeListing),
        (status = "default", description = "Error", body = ErrorBody),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    location: TreeLocation,
    Query(query): Query<PageQuery>,
) -> Result<Json<TreeListing>, ApiError> {
    check_page(&query)?;
    let snapshot = app.snapshots().find(&scope(&caller), &location.root).await?;
    list_entries(&app, &caller, snapshot, location.path, &query).await
}

/// Returns an entry of a snapshot that the caller may see, with a page of its entries if it is a directory.
pub(crate) async fn list_entries(
    app: &App,
    caller: &Caller,
    snapshot: Snapshot,
    path: Vec<u8>,
    query: &PageQuery,
) -> Result<Json<TreeListing>, ApiError> {
    let (page, limit) = check_page(query)?;
    let permit = app.work_limits.read(&caller.owner).await;
    let listing = with_store(&app.store, move |store| {
        let _permit = permit;
        let tree = open_tree(store, &snapshot)?;
        let entry = find_entry(&tree, &path)?;
        listing(&tree, &entry, page, limit)
    });
    Ok(Json(listing.await?))
}

fn listing(tree: &Tree, entry: &Entry, page: u32, limit: u32) -> Result<TreeListing, ApiError> {
    let Node::Directory(directory) = &entry.node else {
        return Ok(TreeListing { entry: entry_to_api(entry)?, items: None, total: 0, page, limit });
    };
    let total = directory.entries;
    let entries = tree.list_range(directory, page_offset(page, limit) as u64, limit.into())?;
    let items = Some(entries.iter().map(entry_to_api).collect::<Result<_, _>>()?);
    Ok(TreeListing { entry: entry_to_api(entry)?, items, total, page, limit })
}

/// Opens the tree of a snapshot. Garbage collection keeps an open tree.
pub(crate) fn open_tree(store: &Store, snapshot: &Snapshot) -> Result<Tree, ApiError> {
    let tree = Tree::of_snapshot(store, snapshot);
    // If the snapshot was removed meanwhile, its tree may be incomplete.
    match store.find_snapshot(&snapshot.id)? {
        Some(_) => Ok(tree?),
        None => Err(snapshot_not_found(&snapshot.id.to_string())),
    }
}

/// Returns the entry at a path. Symlinks on the way are not followed.
pub(super) fn find_entry(tree: &Tree, path: &[u8]) -> Result<Entry, ApiError> {
    let found = tree.entry(path).map_err(|error| match error {
        StoreError::Refused(message) => {
            ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "path")
        }
        other => other.into(),
    })?;
    found.map_or_else(|| Err(missing(tree, path)?), Ok)
}

/// Creates the error for a path that does not exist, which mentions a symlink on the way. Fails if the tree cannot be
/// read.
fn missing(tree: &Tree, path: &[u8]) -> Result<ApiError, ApiError> {
    let shown = quote_path(path);
    for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        if let Some(Entry { node: Node::Symlink(symlink), .. }) = tree.entry(&path[..at])? {
            let (symlink_path, target) = (quote_path(&path[..at]), quote_path(&symlink.target));
            let message = format!(
                "there is no `{shown}`: `{symlink_path}` is a symlink to `{target}`, and symlinks are not followed"
            );
            return Ok(not_found(message, path).detail("symlink", symlink_path).detail("target", target));
        }
    }
    Ok(not_found(format!("there is no `{shown}` in the snapshot"), path))
}

fn not_found(message: String, path: &[u8]) -> ApiError {
    ApiError::new(error_codes::PATH_NOT_FOUND, message).detail("path", quote_path(path))
}

/// Creates the error for a directory or a symlink where a file is required.
pub(super) fn not_a_file(path: &[u8], node: &Node) -> ApiError {
    let shown = quote_path(path);
    match node {
        Node::Symlink(symlink) => {
            let target = TreePath(symlink.target.clone());
            let target = quote_path(&target.0).into_owned();
            let message = format!(
                "`{shown}` is a symlink to `{target}`, and symlinks are not followed: request its target"
            );
            ApiError::new(error_codes::NOT_A_FILE, message).detail("kind", "symlink").detail("target", target)
        }
        _ => {
            let message = format!("`{shown}` is a directory: use `tree` instead of `files` to list it");
            ApiError::new(error_codes::NOT_A_FILE, message).detail("kind", "directory")
        }
    }
    .detail("path", shown)
}
