//! Data types of the insight diff.
//!
//! Described field by field in `docs/insight.md`: if the meaning of something changes, raise
//! [`INSIGHT_VERSION`] and document it there. New fields and codes may be added without that.

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
    /// The tree before.
    pub from: TreeId,
    /// The tree after.
    pub to: TreeId,
    /// Sums over all entries.
    pub totals: Totals,
    /// Risks of the difference that do not belong to a single entry.
    pub notes: Vec<RiskNote>,
    /// One for each difference, sorted by path.
    pub entries: Vec<EntryInsight>,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryInsight {
    /// Path of the entry, the new one for a rename.
    pub path: TreePath,
    /// Kind of the change.
    pub change: ChangeCode,
    /// Path of a renamed entry before the rename.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<TreePath>,
    /// Entry before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<EntrySummary>,
    /// Entry after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<EntrySummary>,
    /// Kind of content; `None` if neither side is a file. Binary if either side is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentCode>,
    /// Number of lines that only the new text has; `None` if lines were not compared.
    pub lines_added: Option<u64>,
    /// Number of lines that only the old text has; `None` if lines were not compared.
    pub lines_removed: Option<u64>,
    /// True if a file is larger than [`LINE_DIFF_MAX`](super::LINE_DIFF_MAX): lines were not compared, and not searched
    /// for secrets.
    pub too_large: bool,
    /// Change of the size of file content in bytes.
    pub size_change: i64,
    /// Risk notes.
    pub notes: Vec<RiskNote>,
}

/// One side of a difference.
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
    /// No NUL in its first 8000 bytes.
    Text,
    /// Anything else.
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
    /// A symlink with an absolute target, or with more `..` components than it is deep.
    SymlinkLeavesTree,
    /// A file that declares dependencies.
    DependencyManifest,
    /// A file that pins dependencies.
    LockFile,
    /// Configuration of continuous integration.
    CiConfig,
    /// A file that runs when the project is built.
    BuildScript,
    /// A file of a git repository that makes git run code: its configuration, or a hook.
    GitCode,
    /// An added line that looks like a secret.
    SecretLikeContent,
    /// Most of a large file was deleted, or a large number of files.
    LargeDeletion,
    /// Text was replaced by binary content.
    BinaryReplacedText,
}

/// A risk and its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskNote {
    /// Kind of the risk.
    pub code: RiskCode,
    /// Line number in the new text, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Pattern that the line matches. The line itself is never part of a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<SecretPattern>,
    /// Entry below a renamed directory.
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
/// The REST API has its own copy, `DiffTotals` of `crates/api`, because that crate must stay light and does
/// not depend on this one; the server converts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Entries added, directories included.
    pub added: u64,
    /// Entries removed, directories included.
    pub removed: u64,
    /// Files and symlinks modified.
    pub modified: u64,
    /// Entries that changed their kind.
    pub type_changed: u64,
    /// Entries with a change of mode or attributes only.
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
    /// Change of the size of file content in bytes.
    pub size_change: i64,
    /// Number of notes by kind; kinds without any are absent.
    pub notes: BTreeMap<RiskCode, u64>,
}

impl Totals {
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

    pub(super) fn count_notes(&mut self, notes: &[RiskNote]) {
        for note in notes {
            *self.notes.entry(note.code).or_insert(0) += 1;
        }
    }
}

/// Permission bits in the notation of `chmod`.
mod octal {
    use super::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mode: &u16, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{mode:04o}"))
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Digits(String),
        /// Number as in version 1, which stored episodes may contain.
        Number(u16),
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Digits(digits) => u16::from_str_radix(&digits, 8).map_err(serde::de::Error::custom),
            Form::Number(mode) => Ok(mode),
        }
    }
}

/// A path inside a tree. Serialised as text, quoted by [`quote_path`] if needed.
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
