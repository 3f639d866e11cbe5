//! Validation of queries about snapshots, and conversion of types of the state engine into those of the API.

use std::collections::BTreeMap;

use workspace_api::diff::DiffQuery;
use workspace_api::error_codes;
use workspace_api::snapshots::{
    EntryKind, ListSnapshotsQuery, PageQuery, SkippedEntry, Snapshot, SnapshotRoot, SnapshotSort, TreeEntry,
    UploadSnapshotQuery, UploadSnapshotResult,
};
use workspace_state::{Entry, ImportReport, Node, NodeKind, Snapshot as Record, SnapshotId, quote_path};

use super::diff::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::error::{ApiError, invalid_cursor};
use crate::time::format_store_time;

/// Maximum size of a page of a directory or of episodes.
const PAGE_MAX: u32 = 1_000;

/// Parameters of a query in order: names and values. A query string cannot be deserialized into a struct if a
/// parameter, such as `label`, is repeated.
pub(super) type Pairs = Vec<(String, String)>;

/// Converts a snapshot. `references` must be all references that the caller may see.
pub(crate) fn snapshot_to_api(
    record: Record,
    references: &[(String, SnapshotId)],
) -> Result<Snapshot, ApiError> {
    let names = references.iter().filter(|(_, to)| *to == record.id).map(|(name, _)| name.clone());
    Ok(Snapshot {
        references: names.collect(),
        time: format_store_time(record.time)?,
        id: record.id.to_string(),
        tree: record.tree.to_string(),
        parents: record.parents.iter().map(ToString::to_string).collect(),
        author: record.author,
        message: record.message,
        labels: record.labels,
        root: record.root.map(|root| SnapshotRoot { tree: root.tree.to_string(), template: root.template }),
    })
}

/// Validated filters and page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListOptions {
    pub(super) page: u32,
    pub(super) cursor: Option<SnapshotId>,
    pub(super) limit: u32,
    labels: BTreeMap<String, String>,
    parent: Option<String>,
    reference: Option<String>,
    pub(super) sort: SnapshotSort,
}

impl ListOptions {
    pub(super) fn parse(pairs: Pairs) -> Result<Self, ApiError> {
        let query = list_query(pairs)?;
        let cursor = query.cursor.map(|id| id.parse().map_err(|_| invalid_cursor())).transpose()?;
        if query.page.is_some() && cursor.is_some() {
            return Err(invalid_cursor());
        }
        Ok(Self {
            page: query.page.unwrap_or(1),
            cursor,
            limit: query.limit.unwrap_or(20),
            labels: parse_labels(&query.label)?,
            parent: query.parent,
            reference: query.reference,
            sort: query.sort.unwrap_or_default(),
        })
    }

    pub(super) fn has_no_filter(&self) -> bool {
        self.labels.is_empty() && self.parent.is_none() && self.reference.is_none()
    }

    /// Returns true if a snapshot passes the filters. `references` must be all references that the caller may see.
    pub(super) fn matches(&self, record: &Record, references: &[(String, SnapshotId)]) -> bool {
        let labelled = self.labels.iter().all(|(name, value)| record.labels.get(name) == Some(value));
        let parent = |parent: &String| parent.parse().is_ok_and(|id| record.parents.contains(&id));
        let named =
            |reference: &String| references.iter().any(|(name, to)| name == reference && *to == record.id);
        labelled && self.parent.as_ref().is_none_or(parent) && self.reference.as_ref().is_none_or(named)
    }
}

fn list_query(pairs: Pairs) -> Result<ListSnapshotsQuery, ApiError> {
    let mut query = ListSnapshotsQuery::default();
    for (name, value) in pairs {
        match name.as_str() {
            "page" => query.page = Some(parse_number("page", &value, u32::MAX)?),
            "cursor" => query.cursor = Some(value),
            "limit" => query.limit = Some(parse_number("limit", &value, workspace_catalog::PAGE_SIZE_MAX)?),
            "label" => query.label.push(value),
            "parent" => query.parent = Some(value),
            "reference" => query.reference = Some(value),
            "sort" => query.sort = Some(parse_sort(&value)?),
            _ => return Err(unknown_parameter(&name)),
        }
    }
    Ok(query)
}

/// Validates a page. Returns its number and its maximum length.
pub(crate) fn check_page(query: &PageQuery) -> Result<(u32, u32), ApiError> {
    let (page, limit) = (query.page.unwrap_or(1), query.limit.unwrap_or(100));
    if page == 0 || !(1..=PAGE_MAX).contains(&limit) {
        let message = format!("page must be at least 1, and limit must be between 1 and {PAGE_MAX}");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message));
    }
    Ok((page, limit))
}

/// Returns the number of items before a page.
pub(crate) fn page_offset(page: u32, limit: u32) -> usize {
    (page as usize - 1).saturating_mul(limit as usize)
}

/// Validates the options of a comparison. Returns the maximum number of differences.
pub(crate) fn check_diff(query: &DiffQuery) -> Result<usize, ApiError> {
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let message = format!("limit must be between 1 and {LIMIT_MAX}");
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "limit"));
    }
    if query.insight && query.patch {
        let message = "`insight` and `patch` cannot be combined";
        return Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "patch"));
    }
    Ok(limit)
}

/// Validated metadata of an upload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UploadOptions {
    pub(super) message: String,
    pub(super) labels: BTreeMap<String, String>,
}

impl UploadOptions {
    pub(super) fn parse(pairs: Pairs) -> Result<Self, ApiError> {
        let mut query = UploadSnapshotQuery::default();
        for (name, value) in pairs {
            match name.as_str() {
                "message" => query.message = value,
                "label" => query.label.push(value),
                _ => return Err(unknown_parameter(&name)),
            }
        }
        Ok(Self { message: query.message, labels: parse_labels(&query.label)? })
    }
}

pub(super) fn unknown_parameter(name: &str) -> ApiError {
    ApiError::new(error_codes::INVALID_REQUEST, format!("unknown parameter `{name}`")).detail("field", name)
}

fn parse_sort(text: &str) -> Result<SnapshotSort, ApiError> {
    match text {
        "newest" => Ok(SnapshotSort::Newest),
        "oldest" => Ok(SnapshotSort::Oldest),
        _ => {
            let message = format!("sort: `{text}` is neither `newest` nor `oldest`");
            Err(ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "sort"))
        }
    }
}

/// Parses a number from 1 to `max`.
fn parse_number(field: &str, text: &str, max: u32) -> Result<u32, ApiError> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| {
        let message = format!("{field}: `{text}` is not a whole number from 1 to {max}");
        ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", field)
    })
}

fn parse_labels(texts: &[String]) -> Result<BTreeMap<String, String>, ApiError> {
    let invalid =
        |message: String| ApiError::new(error_codes::INVALID_REQUEST, message).detail("field", "label");
    let mut labels = BTreeMap::new();
    for text in texts {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| invalid(format!("label: `{text}` does not have the form `name=value`")))?;
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(invalid(format!("label: `{name}` is set twice")));
        }
    }
    Ok(labels)
}

pub(super) fn upload_to_api(report: ImportReport) -> Result<UploadSnapshotResult, ApiError> {
    let skipped = report.skipped.iter().map(|member| SkippedEntry {
        path: quote_path(&member.path).into_owned(),
        reason: member.reason.to_owned(),
    });
    Ok(UploadSnapshotResult {
        skipped: skipped.collect(),
        snapshot: snapshot_to_api(report.snapshot, &[])?,
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        bytes: report.bytes,
        skipped_count: report.skipped_count,
        // Paths that the archive has more than once.
        replaced: report.replaced.iter().map(|path| quote_path(path).into_owned()).collect(),
        replaced_count: report.replaced_count,
    })
}

pub(super) fn entry_to_api(entry: &Entry) -> Result<TreeEntry, ApiError> {
    let target = match &entry.node {
        Node::Symlink(symlink) => Some(quote_path(&symlink.target).into_owned()),
        Node::File(_) | Node::Directory(_) => None,
    };
    Ok(TreeEntry {
        name: quote_path(&entry.name).into_owned(),
        kind: kind_to_api(entry.node.kind()),
        mode: octal(entry.node.mode()),
        size: entry.node.size(),
        modified: entry.modified.map(format_store_time).transpose()?,
        link: entry.link_label,
        target,
    })
}

pub(crate) fn kind_to_api(kind: NodeKind) -> EntryKind {
    match kind {
        NodeKind::File => EntryKind::File,
        NodeKind::Directory => EntryKind::Directory,
        NodeKind::Symlink => EntryKind::Symlink,
    }
}

/// Formats permission bits in octal, with four digits.
pub(crate) fn octal(mode: u16) -> String {
    format!("{mode:04o}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn labels_may_contain_equals_signs_and_commas() {
        let query = UploadOptions::parse(pairs(&[("label", "a=b=c,d"), ("message", "why"), ("label", "e=")]));
        let labels = [("a", "b=c,d"), ("e", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(query.unwrap(), UploadOptions { message: "why".to_owned(), labels: labels.into() });
    }

    #[test]
    fn invalid_queries_are_refused() {
        for wrong in [("label", "a"), ("label", "=a"), ("labels", "a=b"), ("page", "1")] {
            assert!(UploadOptions::parse(pairs(&[wrong])).is_err(), "{wrong:?}");
        }
        assert!(UploadOptions::parse(pairs(&[("label", "a=1"), ("label", "a=2")])).is_err());
        for wrong in
            [("page", "0"), ("page", "-1"), ("limit", "101"), ("limit", ""), ("state", "a"), ("sort", "")]
        {
            assert!(ListOptions::parse(pairs(&[wrong])).is_err(), "{wrong:?}");
        }
    }
}
