//! What is sent and answered about snapshots. The names of fields are those that `workspace --json` has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use workspace_state::{
    Entry as TreeEntry, ImportReport, Node, NodeKind, Snapshot as Record, SnapshotId, TreeId, TreePath,
};

use super::diff::{LIMIT, LIMIT_MAX};
use crate::code;
use crate::error::ApiError;
use crate::sandboxes::wrong_cursor;
use crate::time::moment;

/// A page of something long is never longer.
const PAGE_MAX: u32 = 1_000;

/// Names and values of a query, in order.
pub(super) type Pairs = Vec<(String, String)>;

/// A snapshot: a file tree at a moment in time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Snapshot {
    #[schema(value_type = String, example = "0190c2f1-a5c0-7cc0-a1b2-c3d4e5f60718")]
    id: SnapshotId,
    /// Names its content: equal trees have equal names.
    #[schema(value_type = String)]
    tree: TreeId,
    /// What it was made from.
    #[schema(value_type = Vec<String>)]
    parents: Vec<SnapshotId>,
    /// Who made it.
    author: String,
    /// Why.
    message: String,
    /// When.
    #[schema(format = DateTime)]
    time: String,
    labels: BTreeMap<String, String>,
    /// The references that point to it.
    references: Vec<String>,
}

impl Snapshot {
    pub(crate) fn new(record: Record, references: &[(String, SnapshotId)]) -> Result<Self, ApiError> {
        let names = references.iter().filter(|(_, to)| *to == record.id).map(|(name, _)| name.clone());
        Ok(Self {
            references: names.collect(),
            time: moment(record.time)?,
            id: record.id,
            tree: record.tree,
            parents: record.parents,
            author: record.author,
            message: record.message,
            labels: record.labels,
        })
    }
}

/// A page of snapshots.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnapshotList {
    /// Newest first.
    pub(super) items: Vec<Snapshot>,
    /// How many there are in all.
    pub(super) total: usize,
    /// Which page.
    pub(super) page: u32,
    /// How long a page is.
    pub(super) limit: u32,
    /// The `cursor` of the next page; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(super) next: Option<SnapshotId>,
}

/// Which snapshots.
#[derive(Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Which page, counted from one. Pages shift when snapshots are made or removed meanwhile; `cursor` does not.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub(super) page: u32,
    /// `next` of the page before, instead of `page`.
    #[param(value_type = Option<String>)]
    pub(super) cursor: Option<SnapshotId>,
    /// How long a page is.
    #[param(minimum = 1, maximum = 100, value_type = Option<u32>)]
    pub(super) limit: u32,
    /// A label that they have, `name=value`; may be given several times.
    #[param(value_type = Option<Vec<String>>)]
    label: BTreeMap<String, String>,
    /// A snapshot that they were made from.
    #[param(value_type = Option<String>)]
    parent: Option<String>,
    /// A reference that points to them.
    reference: Option<String>,
}

impl ListQuery {
    pub(super) fn parse(pairs: Pairs) -> Result<Self, ApiError> {
        let labels = BTreeMap::new();
        let mut query =
            Self { page: 1, cursor: None, limit: 20, label: labels, parent: None, reference: None };
        let mut paged = false;
        for (name, value) in pairs {
            match name.as_str() {
                "page" => (query.page, paged) = (number("page", &value, u32::MAX)?, true),
                "cursor" => query.cursor = Some(value.parse().map_err(|_| wrong_cursor())?),
                "limit" => query.limit = number("limit", &value, workspace_catalog::LIMIT_MAX)?,
                "label" => add_label(&mut query.label, &value)?,
                "parent" => query.parent = Some(value),
                "reference" => query.reference = Some(value),
                _ => return Err(unknown(&name)),
            }
        }
        if paged && query.cursor.is_some() {
            return Err(wrong_cursor());
        }
        Ok(query)
    }

    /// Returns true if there is no filter.
    pub(super) fn wants_all(&self) -> bool {
        self.label.is_empty() && self.parent.is_none() && self.reference.is_none()
    }

    /// Whether a snapshot is wanted.
    pub(super) fn fits(&self, record: &Record, references: &[(String, SnapshotId)]) -> bool {
        let labelled = self.label.iter().all(|(name, value)| record.labels.get(name) == Some(value));
        let parent = |wanted: &String| wanted.parse().is_ok_and(|id| record.parents.contains(&id));
        let named = |wanted: &String| references.iter().any(|(name, to)| name == wanted && *to == record.id);
        labelled && self.parent.as_ref().is_none_or(parent) && self.reference.as_ref().is_none_or(named)
    }
}

/// Which page of something long.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// Which page, counted from one. What a snapshot holds never changes, so pages do not shift.
    #[param(minimum = 1, value_type = Option<u64>)]
    pub(crate) page: Option<u32>,
    /// How long a page is.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u32>,
}

impl PageQuery {
    /// Which page, and how long.
    pub(crate) fn check(&self) -> Result<(u32, u32), ApiError> {
        let (page, limit) = (self.page.unwrap_or(1), self.limit.unwrap_or(100));
        if page == 0 || !(1..=PAGE_MAX).contains(&limit) {
            let message = format!("pages begin with 1, and have a length of 1 to {PAGE_MAX}");
            return Err(ApiError::new(code::INVALID_REQUEST, message));
        }
        Ok((page, limit))
    }
}

/// How much is before a page.
pub(crate) fn skipped(page: u32, limit: u32) -> usize {
    (page as usize - 1).saturating_mul(limit as usize)
}

/// How to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiffQuery {
    /// Whether the differences are judged, too.
    #[serde(default)]
    pub(crate) insight: bool,
    /// Whether a patch is wanted, as `git apply` takes it.
    #[serde(default)]
    pub(crate) patch: bool,
    /// So many differences at most, the first by path.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<usize>,
}

impl DiffQuery {
    /// How many differences are told at most.
    pub(crate) fn check(&self) -> Result<usize, ApiError> {
        let limit = self.limit.unwrap_or(LIMIT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let message = format!("limit: 1 to {LIMIT_MAX} differences are allowed");
            return Err(ApiError::new(code::INVALID_REQUEST, message).detail("field", "limit"));
        }
        if self.insight && self.patch {
            let message = "`insight` and `patch` are two answers: ask for one";
            return Err(ApiError::new(code::INVALID_REQUEST, message).detail("field", "patch"));
        }
        Ok(limit)
    }
}

/// What is said about a snapshot that is made.
#[derive(Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct UploadQuery {
    /// Why it is made.
    #[param(value_type = Option<String>)]
    pub(super) message: String,
    /// A label, `name=value`; may be given several times.
    #[param(value_type = Option<Vec<String>>)]
    pub(super) label: BTreeMap<String, String>,
}

impl UploadQuery {
    pub(super) fn parse(pairs: Pairs) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "message" => query.message = value,
                "label" => add_label(&mut query.label, &value)?,
                _ => return Err(unknown(&name)),
            }
        }
        Ok(query)
    }
}

fn unknown(name: &str) -> ApiError {
    ApiError::new(code::INVALID_REQUEST, format!("this has no parameter `{name}`")).detail("field", name)
}

/// A number of a query, from one.
fn number(field: &str, text: &str, max: u32) -> Result<u32, ApiError> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| {
        let message = format!("{field}: `{text}` is no whole number from 1 to {max}");
        ApiError::new(code::INVALID_REQUEST, message).detail("field", field)
    })
}

fn add_label(labels: &mut BTreeMap<String, String>, text: &str) -> Result<(), ApiError> {
    let wrong = |message: String| ApiError::new(code::INVALID_REQUEST, message).detail("field", "label");
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| wrong(format!("label: `{text}` is not of the form `name=value`")))?;
    match labels.insert(name.to_owned(), value.to_owned()) {
        None => Ok(()),
        Some(_) => Err(wrong(format!("label: `{name}` is given twice"))),
    }
}

/// A snapshot that was just made, and what became of the archive.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Uploaded {
    #[serde(flatten)]
    snapshot: Snapshot,
    /// Each name of a file counts.
    files: u64,
    /// Below the root.
    directories: u64,
    symlinks: u64,
    /// Of the files.
    bytes: u64,
    /// What a snapshot cannot hold: the first thousand.
    skipped: Vec<Skipped>,
    /// Number of all members that a snapshot cannot hold.
    #[serde(rename = "skippedCount")]
    skipped_count: u64,
    /// Paths that were in the archive more than once, at most a thousand; the last one counts.
    #[schema(value_type = Vec<String>)]
    replaced: Vec<TreePath>,
    /// Number of all such paths.
    #[serde(rename = "replacedCount")]
    replaced_count: u64,
}

/// Something that is not in the snapshot.
#[derive(Debug, Serialize, ToSchema)]
struct Skipped {
    #[schema(value_type = String)]
    path: TreePath,
    reason: &'static str,
}

impl Uploaded {
    pub(super) fn new(report: ImportReport) -> Result<Self, ApiError> {
        let skipped = report.skipped.into_iter();
        Ok(Self {
            snapshot: Snapshot::new(report.snapshot, &[])?,
            files: report.files,
            directories: report.directories,
            symlinks: report.symlinks,
            bytes: report.bytes,
            skipped: skipped.map(|one| Skipped { path: TreePath(one.path), reason: one.reason }).collect(),
            skipped_count: report.skipped_count,
            replaced: report.replaced.into_iter().map(TreePath).collect(),
            replaced_count: report.replaced_count,
        })
    }
}

/// Something in a tree.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    /// Its name, in double quotes with C escapes if it is not plain text; empty for the root.
    #[schema(value_type = String)]
    name: TreePath,
    /// file, directory or symlink.
    #[schema(value_type = String, example = "file")]
    kind: NodeKind,
    /// Permission bits in octal.
    #[schema(example = "0644")]
    mode: String,
    /// Bytes of a file or of a symlink's target; entries of a directory.
    size: u64,
    /// When it was modified, where that is known.
    #[schema(format = DateTime)]
    modified: Option<String>,
    /// Equal in one snapshot for names of one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<u64>,
    /// Where a symlink points.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    target: Option<TreePath>,
}

impl Entry {
    pub(super) fn new(entry: TreeEntry) -> Result<Self, ApiError> {
        let (kind, mode, size) = (entry.node.kind(), entry.node.mode(), entry.node.size());
        let target = match entry.node {
            Node::Symlink(link) => Some(TreePath(link.target)),
            Node::File(_) | Node::Directory(_) => None,
        };
        Ok(Self {
            name: TreePath(entry.name),
            kind,
            mode: octal(mode),
            size,
            modified: entry.modified.map(moment).transpose()?,
            link: entry.link,
            target,
        })
    }
}

/// Permission bits as `chmod` takes them.
pub(super) fn octal(mode: u16) -> String {
    format!("{mode:04o}")
}

/// What is at a path, and, of a directory, a page of what is in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Listing {
    /// What is there.
    pub(super) entry: Entry,
    /// What is in a directory, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) items: Option<Vec<Entry>>,
    /// How many there are in all.
    pub(super) total: u64,
    /// Which page.
    pub(super) page: u32,
    /// How long a page is.
    pub(super) limit: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn labels_are_read_with_all_that_is_in_them() {
        let query = UploadQuery::parse(pairs(&[("label", "a=b=c,d"), ("message", "why"), ("label", "e=")]));
        let labels = [("a", "b=c,d"), ("e", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(query.unwrap(), UploadQuery { message: "why".to_owned(), label: labels.into() });
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in [("label", "a"), ("label", "=a"), ("labels", "a=b"), ("page", "1")] {
            assert!(UploadQuery::parse(pairs(&[wrong])).is_err(), "{wrong:?}");
        }
        assert!(UploadQuery::parse(pairs(&[("label", "a=1"), ("label", "a=2")])).is_err());
        for wrong in [("page", "0"), ("page", "-1"), ("limit", "101"), ("limit", ""), ("state", "a")] {
            assert!(ListQuery::parse(pairs(&[wrong])).is_err(), "{wrong:?}");
        }
    }
}
