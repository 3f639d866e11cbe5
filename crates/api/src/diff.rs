//! Differences between two trees: `/api/v1/snapshots/{a}/diff/{b}` and `/api/v1/sandboxes/{id}/changes`.
//!
//! The field names are those of `workspace --json diff`; `docs/insight.md` explains the fields of `insight=true`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::notes::Note;
use crate::snapshots::EntryKind;

/// Options of a comparison. `insight` and `patch` are mutually exclusive.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// Adds line counts, totals and risk notes. Default: false.
    #[serde(default)]
    pub insight: bool,
    /// Returns a unified diff for `git apply` (`text/x-diff`) instead of JSON. Default: false.
    #[serde(default)]
    pub patch: bool,
    /// Maximum number of differences, ordered by path. Default: 1000.
    #[param(minimum = 1, maximum = 10000)]
    pub limit: Option<usize>,
}

/// Options of a comparison of snapshots. `patch` excludes `insight` and `why`.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SnapshotDiffQuery {
    /// Adds line counts, totals and risk notes. Default: false.
    #[serde(default)]
    pub insight: bool,
    /// Returns a unified diff for `git apply` (`text/x-diff`) instead of JSON. Default: false.
    #[serde(default)]
    pub patch: bool,
    /// Maximum number of differences, ordered by path. Default: 1000.
    #[param(minimum = 1, maximum = 10000)]
    pub limit: Option<usize>,
    /// Adds the causes of each difference: the snapshots between the two in which the entry changed, with their
    /// commands and notes. Default: false.
    #[serde(default)]
    pub why: bool,
}

/// Snapshot in which entries of a comparison changed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// Id of the snapshot.
    pub snapshot: String,
    /// Creation time.
    #[schema(format = DateTime)]
    pub time: String,
    /// Message of the snapshot; for an automatic snapshot, the command line.
    pub message: String,
    /// Id of the command after which the snapshot was made automatically. Absent for other snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Origins of other changes that the automatic snapshot may contain: `commands` or `processes` that were running,
    /// `files` that were written over the API, `earlier` changes of a command without a snapshot. Empty if all changes
    /// are those of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<String>,
    /// Notes that belong to the snapshot, oldest first.
    pub notes: Vec<Note>,
}

/// Differences between two trees. With `insight=true` it has the additional fields that `docs/insight.md` describes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// Version of the insight fields. Absent without `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Hash of the old tree.
    pub from: String,
    /// Hash of the new tree.
    pub to: String,
    /// Sums over all differences, including those beyond `limit`. Absent without `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<DiffTotals>,
    /// Risks of the differences as a whole. Absent without `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<Vec<RiskNote>>,
    /// Differences, ordered by path, at most `limit`.
    pub entries: Vec<Difference>,
    /// Number of all differences, including those beyond `limit`.
    pub total: usize,
    /// True if `entries` does not contain all differences.
    pub truncated: bool,
    /// Snapshots in which the entries changed, newest first. Absent without `why=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<Vec<Cause>>,
    /// False if there may be other causes: the old snapshot is no ancestor of the new one, you may not see a snapshot
    /// between them, one was deleted, or there are more than 1000 of them, 20 for an entry, or 1 MiB of notes. Absent
    /// without `why=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes_complete: Option<bool>,
}

/// Difference of one entry between two trees. With `insight=true` it has additional fields.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Path of the entry; after a rename, the new path. If it has control characters, quotes, backslashes or bytes that
    /// are not UTF-8, it is in double quotes with C escapes.
    pub path: String,
    /// Kind of the difference: `added`, `removed`, `modified`, `type_changed`, `mode_changed` or `renamed`.
    #[schema(value_type = String, example = "modified")]
    pub change: ChangeKind,
    /// Old path. Only present if `change` is `renamed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// Entry in the old tree. Absent if it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<DifferenceSide>,
    /// Entry in the new tree. Absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<DifferenceSide>,
    /// Ids of the snapshots in which the entry changed, newest first; `causes` of the comparison has the details.
    /// Absent without `why=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causes: Option<Vec<String>>,
    /// Additional fields of the same object, with `insight=true`.
    #[serde(flatten)]
    #[schema(value_type = DifferenceInsight)]
    pub insight: Option<DifferenceInsight>,
}

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Only the new tree has the entry.
    Added,
    /// Only the old tree has the entry.
    Removed,
    /// The content differs.
    Modified,
    /// The kind of entry differs.
    TypeChanged,
    /// Only permission bits or attributes differ.
    ModeChanged,
    /// The entry has another path.
    Renamed,
}

/// Entry of the old or the new tree.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DifferenceSide {
    /// Kind of the entry: `file`, `directory` or `symlink`.
    #[schema(value_type = String, example = "file")]
    pub kind: EntryKind,
    /// Permission bits in octal.
    #[schema(example = "0644")]
    pub mode: String,
    /// Size in bytes of a file or of the target of a symlink; 0 for a directory.
    pub size: u64,
}

/// Additional fields of a difference with `insight=true`. Without it all are absent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DifferenceInsight {
    /// Content of the files: `text` or `binary`. Absent if neither side is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Number of lines that only the new text has; null if lines were not compared.
    pub lines_added: Option<u64>,
    /// Number of lines that only the old text has; null if lines were not compared.
    pub lines_removed: Option<u64>,
    /// True if a file is too large for a comparison of lines.
    #[schema(required = false)]
    pub too_large: bool,
    /// Change of the size of the content in bytes; negative if it shrank.
    #[schema(required = false)]
    pub size_change: i64,
    /// Risks of this difference.
    #[schema(required = false)]
    pub notes: Vec<RiskNote>,
}

/// Risk, with its location.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RiskNote {
    /// Code of the risk; `docs/insight.md` lists them.
    pub code: String,
    /// Line number in the new text, from 1. Absent if the risk has no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Name of the pattern that a secret matches. A note never contains the secret itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Path of the entry, if it is below a renamed directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

// Repeats `insight::Totals` of the state engine, because this crate must stay light and does not depend on the
// engine; the server converts.
/// Sums over all differences.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DiffTotals {
    /// Number of added entries, including directories.
    pub added: u64,
    /// Number of removed entries, including directories.
    pub removed: u64,
    /// Number of modified files and symlinks.
    pub modified: u64,
    /// Number of entries whose kind changed.
    pub type_changed: u64,
    /// Number of entries with changes only in permission bits or attributes.
    pub mode_changed: u64,
    /// Number of renamed files and directories. A directory counts once.
    pub renamed: u64,
    /// Number of removed files, without directories and symlinks.
    pub files_removed: u64,
    /// Number of added lines in the texts that were compared.
    pub lines_added: u64,
    /// Number of removed lines in the texts that were compared.
    pub lines_removed: u64,
    /// Number of differences with binary content.
    pub binary: u64,
    /// Number of differences that are too large for a comparison of lines.
    pub too_large: u64,
    /// Change of the size of all content in bytes; negative if it shrank.
    pub size_change: i64,
    /// Number of notes by code. Codes without notes are absent.
    pub notes: BTreeMap<String, u64>,
}
