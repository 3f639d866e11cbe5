//! The records that `--json` prints. Their field names are an interface: `docs/cli.md` lists them.
//!
//! Paths are [`TreePath`]s, as in the insight diff: text, quoted if it has special characters.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use workspace_state::{
    Entry, Episode, EpisodeId, Node, NodeKind, Snapshot, SnapshotId, Timestamp, TreeId, TreePath,
};

use crate::time;

/// Returns bytes as text if they are UTF-8, otherwise in hexadecimal: one of the two is `None`.
pub(crate) fn text_or_hex(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())),
    }
}

/// Serialises a time as RFC 3339 in UTC with nanoseconds.
pub(crate) fn as_rfc3339<S: Serializer>(timestamp: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time::rfc3339(*timestamp))
}

fn as_optional_rfc3339<S: Serializer>(
    timestamp: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match timestamp {
        Some(timestamp) => as_rfc3339(timestamp, serializer),
        None => serializer.serialize_none(),
    }
}

/// A snapshot.
#[derive(Serialize)]
pub(crate) struct SnapshotFields<'a> {
    id: SnapshotId,
    tree: TreeId,
    parents: &'a [SnapshotId],
    author: &'a str,
    message: &'a str,
    #[serde(serialize_with = "as_rfc3339")]
    time: Timestamp,
    labels: &'a BTreeMap<String, String>,
    references: Vec<&'a str>,
    /// Root filesystem of the sandbox in which it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<RootFields<'a>>,
}

/// Root filesystem in a snapshot.
#[derive(Serialize)]
struct RootFields<'a> {
    tree: TreeId,
    template: &'a str,
}

impl<'a> SnapshotFields<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, references: Vec<&'a str>) -> Self {
        Self {
            id: snapshot.id,
            tree: snapshot.tree,
            parents: &snapshot.parents,
            author: &snapshot.author,
            message: &snapshot.message,
            time: snapshot.time,
            labels: &snapshot.labels,
            references,
            root: snapshot.root.as_ref().map(|root| RootFields { tree: root.tree, template: &root.template }),
        }
    }
}

/// An entry of a tree.
#[derive(Serialize)]
pub(crate) struct EntryFields {
    path: TreePath,
    kind: NodeKind,
    mode: String,
    size: u64,
    #[serde(serialize_with = "as_optional_rfc3339")]
    modified: Option<Timestamp>,
    /// Number that all hard links to one file of the snapshot have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<u64>,
    /// Target of a symlink.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TreePath>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<XattrFields>,
}

/// An extended attribute.
#[derive(Serialize)]
struct XattrFields {
    name: TreePath,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

impl EntryFields {
    pub(crate) fn new(path: &[u8], entry: &Entry) -> Self {
        let (target, xattrs) = match &entry.node {
            Node::Symlink(link) => (Some(TreePath(link.target.clone())), None),
            Node::File(file) => (None, Some(&file.xattrs)),
            Node::Directory(directory) => (None, Some(&directory.xattrs)),
        };
        let xattr = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            let (value, value_hex) = text_or_hex(value);
            XattrFields { name: TreePath(name.clone()), value, value_hex }
        };
        Self {
            path: TreePath(path.to_vec()),
            kind: entry.node.kind(),
            mode: octal_mode(entry.node.mode()),
            size: entry.node.size(),
            modified: entry.modified,
            link: entry.link_label,
            target,
            xattrs: xattrs.into_iter().flatten().map(xattr).collect(),
        }
    }
}

/// Returns permission bits in octal, as `chmod` takes them.
pub(crate) fn octal_mode(mode: u16) -> String {
    format!("{mode:04o}")
}

/// An episode.
#[derive(Serialize)]
pub(crate) struct EpisodeFields<'a> {
    id: EpisodeId,
    snapshot: SnapshotId,
    parent: Option<EpisodeId>,
    action: &'a str,
    reward: f64,
    visits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    insight: Option<&'a serde_json::Value>,
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    data: &'a serde_json::Value,
    #[serde(serialize_with = "as_rfc3339")]
    time: Timestamp,
}

impl<'a> EpisodeFields<'a> {
    pub(crate) fn new(episode: &'a Episode) -> Self {
        Self {
            id: episode.id,
            snapshot: episode.snapshot,
            parent: episode.parent,
            action: &episode.action,
            reward: episode.reward,
            visits: episode.visits,
            insight: episode.insight.as_ref(),
            data: &episode.data,
            time: episode.time,
        }
    }
}
