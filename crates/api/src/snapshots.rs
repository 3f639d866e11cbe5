//! `/api/v1/snapshots`: snapshots and their trees.
//!
//! Fields are named as in the output of `workspace --json`, in snake_case.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Snapshot: an immutable file tree with its metadata.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Id of the snapshot.
    #[schema(example = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718")]
    pub id: String,
    /// Hash of the tree. Equal trees have equal hashes.
    pub tree: String,
    /// Ids of the snapshots that it was created from.
    pub parents: Vec<String>,
    /// Author; for snapshots created over HTTP, the owner of the key.
    pub author: String,
    /// Message, which may be empty.
    pub message: String,
    /// Creation time.
    #[schema(format = DateTime)]
    pub time: String,
    /// Labels. Lists can be filtered by them.
    pub labels: BTreeMap<String, String>,
    /// Names of your references that point to the snapshot; with an admin key, of all references of the store.
    pub references: Vec<String>,
    /// Root filesystem of the sandbox in which the snapshot was made. Absent if it was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<SnapshotRoot>,
}

/// Root filesystem in a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SnapshotRoot {
    /// Hash of the tree of the root filesystem.
    pub tree: String,
    /// Name of the template from which it was made. A sandbox with `root: kept` that starts with the snapshot has the
    /// same template.
    pub template: String,
}

/// Page of snapshots.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// Snapshots in the order of `sort`.
    pub items: Vec<Snapshot>,
    /// Number of snapshots on all pages.
    pub total: usize,
    /// Page number, starting at 1. Always 1 if the request has a `cursor`.
    pub page: u32,
    /// Maximum number of snapshots per page.
    pub limit: u32,
    /// Value of `cursor` for the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Filters and page of a list of snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListSnapshotsQuery {
    /// Page number, starting at 1. Default: 1. Entries move between pages when snapshots are created or deleted; use
    /// `cursor` to avoid that.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// `next` of the previous page. Cannot be combined with `page`.
    pub cursor: Option<String>,
    /// Maximum number of snapshots per page. Default: 20.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// Filter by a label: `name=value`. If it is repeated, all must match.
    #[param(value_type = Option<Vec<String>>)]
    pub label: Vec<String>,
    /// Filter by the id of a parent.
    pub parent: Option<String>,
    /// Filter by the name of a reference that points to the snapshot.
    pub reference: Option<String>,
    /// Order. Default: `newest`. Use a cursor with the order of the list that it is from.
    #[param(inline)]
    pub sort: Option<SnapshotSort>,
}

/// Order of a list of snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotSort {
    /// Newest first.
    #[default]
    Newest,
    /// Oldest first.
    Oldest,
}

/// Part of a snapshot to archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SnapshotArchiveQuery {
    /// Path in the snapshot of the directory, file or symlink to archive. Default: the whole snapshot. Bytes that are
    /// not UTF-8 may be encoded as `%XX`.
    #[param(value_type = Option<String>)]
    pub path: Vec<u8>,
}

/// Metadata of an uploaded snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UploadSnapshotQuery {
    /// Message of the snapshot.
    #[param(value_type = Option<String>)]
    pub message: String,
    /// Label of the snapshot: `name=value`. May be repeated.
    #[param(value_type = Option<Vec<String>>)]
    pub label: Vec<String>,
}

/// Snapshot that was created from an archive, and a summary of the archive.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploadSnapshotResult {
    /// New snapshot.
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// Number of files. Each hard link counts.
    pub files: u64,
    /// Number of directories, without the root.
    pub directories: u64,
    /// Number of symlinks.
    pub symlinks: u64,
    /// Total size of the files in bytes.
    pub bytes: u64,
    /// Members that a snapshot cannot contain, such as devices. At most 1000.
    pub skipped: Vec<SkippedEntry>,
    /// Total number of members that a snapshot cannot contain.
    pub skipped_count: u64,
    /// Paths that are in the archive more than once; the last member was used. At most 1000. Paths with
    /// control characters, quotes, backslashes or bytes that are not UTF-8 are in double quotes with C escapes.
    pub replaced: Vec<String>,
    /// Total number of paths that are in the archive more than once.
    pub replaced_count: u64,
}

/// Entry that a snapshot cannot contain.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SkippedEntry {
    /// Path. If it has control characters, quotes, backslashes or bytes that are not UTF-8, it is in double quotes with
    /// C escapes.
    pub path: String,
    /// Human-readable reason.
    pub reason: String,
}

/// Query parameters of a page of a list that never changes, so that pages need no cursor.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Page number, starting at 1. Default: 1.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// Maximum number of entries per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Kind of an entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
}

/// Entry of a tree.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TreeEntry {
    /// Name; empty for the root. If it has control characters, quotes, backslashes or bytes that are not UTF-8, it is
    /// in double quotes with C escapes.
    pub name: String,
    /// Kind of the entry: `file`, `directory` or `symlink`.
    #[schema(value_type = String, example = "file")]
    pub kind: EntryKind,
    /// Permission bits in octal.
    #[schema(example = "0644")]
    pub mode: String,
    /// Size in bytes of a file or of the target of a symlink; number of entries of a directory.
    pub size: u64,
    /// Modification time; null if it is not known.
    #[schema(format = DateTime)]
    pub modified: Option<String>,
    /// Id of the file within this snapshot, equal for all hard links to it. Absent for a file with one link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
    /// Target, quoted like the name. Only present for a symlink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Entry of a tree and, for a directory, a page of its entries.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TreeListing {
    /// Entry at the path.
    pub entry: TreeEntry,
    /// Entries of the directory, ordered by name. Absent if the entry is not a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<TreeEntry>>,
    /// Number of entries of the directory.
    pub total: u64,
    /// Page number, starting at 1.
    pub page: u32,
    /// Maximum number of entries per page.
    pub limit: u32,
}
