//! Data types of the insight diff: a diff with line counts, sizes and risk notes for each change.
//!
//! `docs/insight.md` describes each field. If the meaning of a field or code changes, raise [`INSIGHT_VERSION`] and
//! describe the change there. A new field or code needs no new version.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::secrets::SecretPattern;
use crate::entry::Entry;
use crate::id::TreeId;
use crate::node::NodeKind;
use crate::quote::{quote_path, unquote_path};

/// Version of the meaning of fields and codes of an [`InsightDiff`].
pub const INSIGHT_VERSION: u32 = 2;

/// Differences between two trees, with an assessment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsightDiff {
    /// [`INSIGHT_VERSION`] of the writer.
    pub version: u32,
    /// Id of the old tree.
    pub from: TreeId,
    /// Id of the new tree.
    pub to: TreeId,
    /// Sums over all entries.
    pub totals: Totals,
    /// Risks of the whole diff, which do not belong to a single entry.
    pub notes: Vec<RiskNote>,
    /// Differences, sorted by path.
    pub entries: Vec<EntryInsight>,
}

/// Assessment of one difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryInsight {
    /// Path of the entry; the new path for a rename.
    pub path: TreePath,
    /// Kind of the change.
    pub change: ChangeCode,
    /// Path before a rename; `None` for other changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<TreePath>,
    /// Entry before the change; `None` if it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<EntrySummary>,
    /// Entry after the change; `None` if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<EntrySummary>,
    /// Kind of content: binary if the old or the new content is binary, or else text. `None` if neither entry is a
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentCode>,
    /// Number of lines that only the new text has; `None` if lines were not compared.
    pub lines_added: Option<u64>,
    /// Number of lines that only the old text has; `None` if lines were not compared.
    pub lines_removed: Option<u64>,
    /// True if a text file is larger than [`LINE_DIFF_MAX`](super::LINE_DIFF_MAX), so that its lines were not compared
    /// and not searched for secrets.
    pub too_large: bool,
    /// Change of the size of file content in bytes.
    pub size_change: i64,
    /// Risks of this difference.
    pub notes: Vec<RiskNote>,
}

/// Properties of the old or the new entry of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntrySummary {
    /// Kind of the entry.
    pub kind: EntryCode,
    /// Permission bits. Serialised as four octal digits, as everywhere else in JSON.
    #[serde(with = "octal")]
    pub mode: u16,
    /// Length of a file or of a symlink's target in bytes; 0 for a directory.
    pub size: u64,
}

impl EntrySummary {
    /// Summarises an entry.
    pub(super) fn of(entry: &Entry) -> Self {
        let kind = match entry.node.kind() {
            NodeKind::File => EntryCode::File,
            NodeKind::Directory => EntryCode::Directory,
            NodeKind::Symlink => EntryCode::Symlink,
        };
        let size = if kind == EntryCode::Directory { 0 } else { entry.node.size() };
        Self { kind, mode: entry.node.mode(), size }
    }
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryCode {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Kind of a change; see [`DifferenceKind`](crate::DifferenceKind).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "documented at the kinds of the same names")]
pub enum ChangeCode {
    Added,
    Removed,
    Modified,
    TypeChanged,
    ModeChanged,
    Renamed,
}

/// Kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentCode {
    /// Content without a NUL in the first 8000 bytes.
    Text,
    /// Content with a NUL in the first 8000 bytes.
    Binary,
}

/// Risk that makes a change worth a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RiskCode {
    /// A file gained an execute bit; a new executable file counts.
    BecameExecutable,
    /// An entry gained a set-user-id or set-group-id bit.
    SetIdBit,
    /// A symlink points outside of the tree: its target is absolute, or leads above the root with `..`.
    SymlinkLeavesTree,
    /// A file that declares dependencies changed, such as `Cargo.toml`.
    DependencyManifest,
    /// A file with exact versions of dependencies changed, such as `Cargo.lock`.
    LockFile,
    /// Configuration of continuous integration changed.
    CiConfig,
    /// A file that runs when the project is built changed.
    BuildScript,
    /// A file that makes git run code changed: the configuration of a repository, or a hook.
    GitCode,
    /// An added line looks like a secret.
    SecretLikeContent,
    /// Most lines of a large file were deleted, or a large number of files.
    LargeDeletion,
    /// Binary content replaced text.
    BinaryReplacedText,
}

/// Risk of a change, with its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskNote {
    /// Kind of the risk.
    pub code: RiskCode,
    /// Line number in the new text, counted from 1; `None` if the risk does not concern one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Pattern of secrets that the line matches; `None` for other risks. The line itself is never part of a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<SecretPattern>,
    /// Path of an entry below a renamed directory that the risk concerns; `None` if it concerns the difference itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<TreePath>,
}

impl From<RiskCode> for RiskNote {
    fn from(code: RiskCode) -> Self {
        Self { code, line: None, pattern: None, path: None }
    }
}

/// Sums over the entries of an insight diff.
///
/// The REST API has its own type for this, `DiffTotals` in `crates/api`, because that crate must not depend on this
/// one. The server converts one to the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of added entries, including directories.
    pub added: u64,
    /// Number of removed entries, including directories.
    pub removed: u64,
    /// Number of modified files and symlinks.
    pub modified: u64,
    /// Number of entries that changed their kind.
    pub type_changed: u64,
    /// Number of entries of which only mode or extended attributes changed.
    pub mode_changed: u64,
    /// Number of renamed files and directories. A directory counts as one entry.
    pub renamed: u64,
    /// Number of removed files, without directories and symlinks.
    pub files_removed: u64,
    /// Number of added lines in files whose lines were compared.
    pub lines_added: u64,
    /// Number of removed lines in files whose lines were compared.
    pub lines_removed: u64,
    /// Number of entries with binary content.
    pub binary: u64,
    /// Number of text files that are too large to compare lines.
    pub too_large: u64,
    /// Change of the size of file content in bytes.
    pub size_change: i64,
    /// Number of notes by kind of risk. Kinds without notes are absent.
    pub notes: BTreeMap<RiskCode, u64>,
}

impl Totals {
    /// Adds an entry to the sums.
    pub(super) fn count(&mut self, entry: &EntryInsight) {
        let counter = match entry.change {
            ChangeCode::Added => &mut self.added,
            ChangeCode::Removed => &mut self.removed,
            ChangeCode::Modified => &mut self.modified,
            ChangeCode::TypeChanged => &mut self.type_changed,
            ChangeCode::ModeChanged => &mut self.mode_changed,
            ChangeCode::Renamed => &mut self.renamed,
        };
        *counter += 1;
        let was_file = entry.old.is_some_and(|old| old.kind == EntryCode::File);
        self.files_removed += u64::from(was_file && entry.change == ChangeCode::Removed);
        self.lines_added += entry.lines_added.unwrap_or(0);
        self.lines_removed += entry.lines_removed.unwrap_or(0);
        self.binary += u64::from(entry.content == Some(ContentCode::Binary));
        self.too_large += u64::from(entry.too_large);
        self.size_change = self.size_change.saturating_add(entry.size_change);
        self.count_notes(&entry.notes);
    }

    /// Adds notes to the sums.
    pub(super) fn count_notes(&mut self, notes: &[RiskNote]) {
        for note in notes {
            *self.notes.entry(note.code).or_insert(0) += 1;
        }
    }
}

/// Serialisation of permission bits as four octal digits.
mod octal {
    use super::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mode: &u16, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{mode:04o}"))
    }

    /// Accepted JSON values.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Digits(String),
        /// Number, as in version 1. Stored episodes (steps of a search) may contain insight diffs of that version.
        Number(u16),
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Digits(digits) => u16::from_str_radix(&digits, 8).map_err(serde::de::Error::custom),
            Form::Number(mode) => Ok(mode),
        }
    }
}

/// Path inside a tree. Serialised as text that is quoted by [`quote_path`] if necessary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(pub Vec<u8>);

impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&quote_path(&self.0))
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match unquote_path(&text) {
            Some(path) => Ok(Self(path.into_owned())),
            None => Err(serde::de::Error::custom(format!("`{text}` is not a quoted path"))),
        }
    }
}
