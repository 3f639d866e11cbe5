//! `/api/v1/snapshots`: snapshots and their trees.
//!
//! The field names are those of `workspace --json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A snapshot: a file tree at a moment in time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Unique id.
    #[schema(example = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718")]
    pub id: String,
    /// Hash of the tree: equal trees have equal hashes.
    pub tree: String,
    /// Ids of the snapshots that it was made from.
    pub parents: Vec<String>,
    /// Author.
    pub author: String,
    /// Message.
    pub message: String,
    /// Time of creation.
    #[schema(format = DateTime)]
    pub time: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Names of the references that point to it.
    pub references: Vec<String>,
}

/// A page of snapshots.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// The snapshots, newest first.
    pub items: Vec<Snapshot>,
    /// Number of snapshots on all pages.
    pub total: usize,
    /// Page, from 1.
    pub page: u32,
    /// Length of a page.
    pub limit: u32,
    /// The `cursor` of the next page; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Filters and page of a list of snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListSnapshotsQuery {
    /// Page, from 1. Pages shift when snapshots are created or deleted meanwhile; `cursor` does not.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// `next` of the previous page, instead of `page`.
    pub cursor: Option<String>,
    /// Length of a page.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// Label that they have, `name=value`; may be given several times.
    #[param(value_type = Option<Vec<String>>)]
    pub label: Vec<String>,
    /// Id of a snapshot that they were made from.
    pub parent: Option<String>,
    /// Name of a reference that points to them.
    pub reference: Option<String>,
}

/// Metadata of an uploaded snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UploadSnapshotQuery {
    /// Message of the snapshot.
    #[param(value_type = Option<String>)]
    pub message: String,
    /// Label, `name=value`; may be given several times.
    #[param(value_type = Option<Vec<String>>)]
    pub label: Vec<String>,
}

/// A snapshot that was made from an archive.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UploadedSnapshot {
    /// The snapshot.
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// Number of files; each hard link counts.
    pub files: u64,
    /// Number of directories below the root.
    pub directories: u64,
    /// Number of symlinks.
    pub symlinks: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Members that a snapshot cannot hold, the first thousand.
    pub skipped: Vec<SkippedEntry>,
    /// Number of all members that a snapshot cannot hold.
    pub skipped_count: u64,
    /// Paths that were in the archive more than once, at most a thousand; the last one counts.
    pub replaced: Vec<String>,
    /// Number of all such paths.
    pub replaced_count: u64,
}

/// An entry that a snapshot does not hold.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SkippedEntry {
    /// Path, in double quotes with C escapes if it is not plain text.
    pub path: String,
    /// Reason.
    pub reason: String,
}

/// Page of something that does not change.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Page, from 1. The content of a snapshot never changes, so pages do not shift.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// Length of a page.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Kind of an entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// An entry of a tree.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TreeEntry {
    /// Name, in double quotes with C escapes if it is not plain text; empty for the root.
    pub name: String,
    /// Kind: file, directory or symlink.
    #[schema(value_type = String, example = "file")]
    pub kind: EntryKind,
    /// Permission bits in octal.
    #[schema(example = "0644")]
    pub mode: String,
    /// Bytes of a file or of a symlink's target; entries of a directory.
    pub size: u64,
    /// Modification time, if it is known.
    #[schema(format = DateTime)]
    pub modified: Option<String>,
    /// Number that all hard links to one file have in common in this snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
    /// Target of a symlink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// An entry and, if it is a directory, a page of its entries.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TreeListing {
    /// The entry at the path.
    pub entry: TreeEntry,
    /// Entries of the directory, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<TreeEntry>>,
    /// Number of entries on all pages.
    pub total: u64,
    /// Page, from 1.
    pub page: u32,
    /// Length of a page.
    pub limit: u32,
}
