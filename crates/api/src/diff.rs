//! Differences between two trees: `/api/v1/snapshots/{a}/diff/{b}` and `/api/v1/sandboxes/{id}/changes`.
//!
//! The field names are those of `workspace --json diff`; `docs/insight.md` explains the fields of `insight=true`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::snapshots::EntryKind;

/// Options of a comparison.
#[derive(Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// Add line counts and risk notes to the differences.
    #[serde(default)]
    pub insight: bool,
    /// Return a patch, as `git apply` takes it.
    #[serde(default)]
    pub patch: bool,
    /// Largest number of differences, the first by path. 1,000 by default.
    #[param(minimum = 1, maximum = 10000)]
    pub limit: Option<usize>,
}

/// Differences between two trees. With `insight=true` it has all fields that `docs/insight.md` describes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// Version of the insight fields, with `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Hash of the old tree.
    pub from: String,
    /// Hash of the new tree.
    pub to: String,
    /// Sums over all differences, with `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub totals: Option<DiffTotals>,
    /// Risks of the difference as a whole, with `insight=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub notes: Option<Vec<RiskNote>>,
    /// The differences, by path; with `insight=true` each has more fields.
    pub entries: Vec<Difference>,
    /// Number of all differences.
    pub total: usize,
    /// True if some are left out here.
    pub truncated: bool,
}

/// A difference.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Path; for a rename, the new one. In double quotes with C escapes if it is not plain text.
    pub path: String,
    /// Kind: added, removed, modified, type_changed, mode_changed or renamed.
    #[schema(value_type = String, example = "modified")]
    pub change: ChangeKind,
    /// Old path of a renamed entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<String>,
    /// The old entry; none if there was nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<DifferenceSide>,
    /// The new entry; none if there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<DifferenceSide>,
    /// Further fields of the same object, with `insight=true`.
    #[serde(flatten)]
    #[schema(ignore)]
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

/// One side of a difference.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DifferenceSide {
    /// Kind: file, directory or symlink.
    #[schema(value_type = String, example = "file")]
    pub kind: EntryKind,
    /// Permission bits in octal.
    #[schema(example = "0644")]
    pub mode: String,
    /// Bytes of a file or of a symlink's target; 0 for a directory.
    pub size: u64,
}

/// Insight into one difference.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DifferenceInsight {
    /// Content of the files: `text` or `binary`; none if neither side is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Lines that only the new text has; none if lines were not compared.
    pub lines_added: Option<u64>,
    /// Lines that only the old text has; none if lines were not compared.
    pub lines_removed: Option<u64>,
    /// True if a file is too large to compare lines.
    pub too_large: bool,
    /// Bytes of file content gained, negative if lost.
    pub size_change: i64,
    /// Risks.
    pub notes: Vec<RiskNote>,
}

/// A risk, and its location.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RiskNote {
    /// Code of the risk.
    pub code: String,
    /// Line of the new text, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Name of the pattern that a secret matches. The line itself is never part of a note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Path of the entry below a renamed directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Sums over all differences.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiffTotals {
    /// Entries added, directories included.
    pub added: u64,
    /// Entries removed, directories included.
    pub removed: u64,
    /// Files and symlinks modified.
    pub modified: u64,
    /// Entries that changed their kind.
    pub type_changed: u64,
    /// Entries of which only permission bits or attributes changed.
    pub mode_changed: u64,
    /// Files and directories renamed; a directory counts once.
    pub renamed: u64,
    /// Files removed, directories and symlinks not included.
    pub files_removed: u64,
    /// Lines added, where lines were compared.
    pub lines_added: u64,
    /// Lines removed, where lines were compared.
    pub lines_removed: u64,
    /// Entries with binary content.
    pub binary: u64,
    /// Entries too large to compare lines.
    pub too_large: u64,
    /// Bytes of file content gained, negative if lost.
    pub size_change: i64,
    /// Number of notes by code; codes without notes are absent.
    pub notes: BTreeMap<String, u64>,
}
