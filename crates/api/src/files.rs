//! `/api/v1/sandboxes/{id}/files`, `entries` and `watch`: files of a running sandbox.
//!
//! Paths are those inside the sandbox, with the rights of its user. In JSON, a path with control characters, quotes,
//! backslashes or bytes that are not UTF-8 is in double quotes with C escapes, as in the output of git. That applies to
//! requests as well as to responses.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::ErrorFields;

/// Kind of an entry of a directory in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// FIFO, socket or device.
    Special,
}

/// File, directory or another entry in a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Absolute path. In the items of a listing, the path relative to the directory. A path with
    /// control characters, quotes, backslashes or bytes that are not UTF-8 is in double quotes with C escapes.
    #[schema(example = "/workspace/README.md")]
    pub path: String,
    /// Kind of the entry: `file`, `directory`, `symlink` or `special` (FIFO, socket or device).
    #[schema(value_type = String, example = "file")]
    pub kind: FileKind,
    /// Permission bits in octal.
    #[schema(example = "0644")]
    pub mode: String,
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    #[schema(format = DateTime)]
    pub modified: String,
    /// Value that differs whenever the file was replaced or changed, as in the header `ETag`: with double quotes.
    #[schema(example = "\"1a2b-c-17a0b1c2d3e4f5a6-17a0b1c2d3e4f5a6\"")]
    pub etag: String,
    /// User id inside the sandbox.
    #[schema(value_type = u64)]
    pub uid: u32,
    /// Group id inside the sandbox.
    #[schema(value_type = u64)]
    pub gid: u32,
    /// Target. Only present for a symlink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Entry and, for a directory, a page of the entries below it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FileListing {
    /// Entry at the path.
    pub entry: FileEntry,
    /// Entries below the directory, ordered by path. Absent if the entry is not a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<FileEntry>>,
    /// Number of entries on all pages.
    pub total: u64,
    /// Page number, starting at 1.
    pub page: u32,
    /// Maximum number of entries per page.
    pub limit: u32,
}

/// Options of a listing.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListFilesQuery {
    /// Levels below the directory. Default: 1, its own entries.
    #[param(minimum = 1, maximum = 32)]
    pub depth: Option<u32>,
    /// Page number, starting at 1. Default: 1. Entries move between pages when files are created or removed.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub page: Option<u32>,
    /// Maximum number of entries per page. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Follows a symlink at the path. Default: true.
    pub follow: Option<bool>,
}

/// Format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArchiveFormat {
    /// Tar in pax format.
    Tar,
}

/// Options of reading a file.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadFileQuery {
    /// Reads a directory with its content as an archive.
    #[param(inline)]
    pub archive: Option<ArchiveFormat>,
}

/// Options of writing a file.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WriteFileQuery {
    /// Permission bits in octal, such as `0644`. Default: those of the present file, or `0644`.
    #[param(pattern = "^[0-7]{3,4}$")]
    pub mode: Option<String>,
    /// Creates missing parent directories. Default: false.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    pub mkdirs: bool,
    /// Writes the members of an archive into a directory, which is created. Files that exist are replaced one by one;
    /// others stay.
    #[param(inline)]
    pub archive: Option<ArchiveFormat>,
}

/// Options of removing a file.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RemoveFileQuery {
    /// Removes a directory with its content. Default: false.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    pub recursive: bool,
}

/// Result of writing a file or an archive.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum WriteResult {
    /// Written file.
    File(FileEntry),
    /// Summary of an archive.
    Archive(TreeResult),
}

/// Summary of an archive that was written into a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeResult {
    /// Number of files. Each hard link counts.
    pub files: u64,
    /// Total size of the files in bytes.
    pub bytes: u64,
    /// Number of devices, FIFOs and other members that were skipped.
    pub skipped: u64,
}

/// Request to change several files.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"operations": [
    {"op": "mkdir", "path": "/workspace/src", "parents": true},
    {"op": "write", "path": "/workspace/src/main.py", "text": "print('hello')\n"},
]}))]
pub struct FileBatch {
    /// Operations, performed in order up to the first that fails.
    #[schema(max_items = 1000)]
    pub operations: Vec<FileOperation>,
}

/// Operation of a batch. Paths are absolute.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum FileOperation {
    /// Creates a directory.
    Mkdir {
        /// Path of the directory.
        path: String,
        /// Permission bits in octal. Default: `0755`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// Creates missing parents, and succeeds if the directory exists. Default: false.
        #[serde(default)]
        parents: bool,
    },
    /// Renames a file or directory.
    Move {
        /// Present path.
        from: String,
        /// New path.
        to: String,
        /// Replaces a file at the new path. Default: false.
        #[serde(default)]
        replace: bool,
    },
    /// Copies a file or directory.
    Copy {
        /// Path of the original.
        from: String,
        /// Path of the copy.
        to: String,
        /// Replaces a file at the path of the copy. Default: false.
        #[serde(default)]
        replace: bool,
        /// Copies a directory with its content. Default: false.
        #[serde(default)]
        recursive: bool,
    },
    /// Changes the permissions of a file or directory.
    Chmod {
        /// Path of the file or directory.
        path: String,
        /// Permission bits in octal.
        mode: String,
    },
    /// Removes a file or directory.
    Remove {
        /// Path to remove.
        path: String,
        /// Removes a directory with its content. Default: false.
        #[serde(default)]
        recursive: bool,
        /// Succeeds if there is nothing at the path. Default: false.
        #[serde(default)]
        force: bool,
    },
    /// Writes a file, atomically. Its content is either `text` or `base64`; without both, it is empty.
    Write {
        /// Path of the file.
        path: String,
        /// Content as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Content in base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
        /// Permission bits in octal. Default: those of the present file, or `0644`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// Creates missing parent directories. Default: false.
        #[serde(default)]
        mkdirs: bool,
        /// Fails with `PRECONDITION_FAILED` unless the present file has this `etag`, or exists if it is `*`.
        #[serde(default, rename = "ifMatch", skip_serializing_if = "Option::is_none")]
        if_match: Option<String>,
        /// Only `*`: fails with `PRECONDITION_FAILED` if there is a file.
        #[serde(default, rename = "ifNoneMatch", skip_serializing_if = "Option::is_none")]
        if_none_match: Option<String>,
    },
}

/// Result of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FileBatchResult {
    /// Number of operations that succeeded.
    pub completed: usize,
    /// Operation that failed; the rest was not attempted. Absent if all succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedOperation>,
}

/// Operation of a batch that failed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FailedOperation {
    /// Index of the operation in the request, starting at 0.
    pub index: usize,
    /// Error, as in an error response.
    pub error: ErrorFields,
}

/// Options of a watch.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WatchFilesQuery {
    /// Watches everything below the directory, up to 8,192 directories. Default: false.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    pub recursive: bool,
}

/// Server-sent event of a watch. The stream is text; this schema describes its fields.
#[derive(Debug, ToSchema)]
pub struct WatchServerSentEvent {
    /// Kind of the event: `created`, `modified`, `removed`, `renamed`, `attributes`, `dropped` or `ended`.
    pub event: String,
    /// `WatchEvent` as JSON.
    pub data: String,
}

/// Kind of an event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchEventKind {
    /// An entry was created, or moved here from elsewhere.
    Created,
    /// Content was written.
    Modified,
    /// An entry was removed, or moved elsewhere.
    Removed,
    /// An entry was renamed inside the watched directory.
    Renamed,
    /// Permissions, owner, times or extended attributes changed.
    Attributes,
    /// Changes were lost: list the directory again.
    Dropped,
    /// The watch ended.
    Ended,
}

impl fmt::Display for WatchEventKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Removed => "removed",
            Self::Renamed => "renamed",
            Self::Attributes => "attributes",
            Self::Dropped => "dropped",
            Self::Ended => "ended",
        })
    }
}

/// Event of a watch. `ended` is the last event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    /// Kind of the event: `created`, `modified`, `removed`, `renamed`, `attributes`, `dropped` or `ended`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: WatchEventKind,
    /// Path relative to the watched directory; empty for itself. In `dropped`: the directory below which changes were
    /// lost. Absent in `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Old path. Only in `renamed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// True for a directory. Absent in `dropped` and `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<bool>,
    /// Reason why the watch ended. Only in `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
