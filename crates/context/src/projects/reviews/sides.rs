//! Versions of a review (a conflict that waits for a decision): the base, the two sides of the conflict (`ours` and
//! `theirs`), and the present head. In names of this module, *side* means each of the four, as in the API.

use std::fmt;

use workspace_catalog::{Project, Review};
use workspace_state::{Entry, Node, Snapshot, SnapshotId, Store, Tree};

use super::data::{ReviewData, snapshots};
use crate::projects::error::Result;
use crate::projects::versions::{content_hash, mime_type};
use crate::projects::{Projects, find_snapshot};

/// Maximum size in bytes of a file whose content is part of a version.
const INLINE_MAX: u64 = 64 << 10;
/// Number of bytes at the start of a file that are searched for a NUL byte. A file with one is binary.
const TEXT_PROBE: u64 = 8 << 10;

/// One of the four versions of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewSide {
    /// Version that the agent started from.
    Base,
    /// Version that the head had when the review was opened.
    Ours,
    /// Version of the agent.
    Theirs,
    /// Version of the present head.
    Head,
}

impl ReviewSide {
    /// Returns the side with that name: `base`, `ours`, `theirs` or `head`.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Base, Self::Ours, Self::Theirs, Self::Head].into_iter().find(|side| side.to_string() == name)
    }
}

impl fmt::Display for ReviewSide {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Base => "base",
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Head => "head",
        })
    }
}

/// Version of the entry that a review is about.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewVersion {
    /// Path of the entry in its own snapshot.
    pub path: Vec<u8>,
    /// Entry; `None` if this version has none.
    pub entry: Option<Entry>,
    /// Identity of the version: equal for equal content, kind, mode and attributes; `absent` without an entry.
    pub version: String,
    /// Hash of the content of a file; `None` for other entries.
    pub hash: Option<String>,
    /// MIME type that the name of a file suggests; `None` if it suggests none, or the entry is no file.
    pub mime: Option<String>,
    /// True if a file looks like text; `None` if there is no file.
    pub is_text: Option<bool>,
    /// Text of a file of at most 64 KiB, or target of a symlink; `None` if it is larger or not UTF-8.
    pub content: Option<String>,
}

/// Snapshot and path of one version. The snapshot may have no entry at this path.
#[derive(Debug, Clone)]
pub(super) struct VersionLocation {
    pub(super) snapshot: SnapshotId,
    pub(super) path: Vec<u8>,
}

/// Entry of a version, and the tree from which its content is read.
pub(super) struct EntryInTree {
    pub(super) tree: Tree,
    /// `None` if the tree has no entry at the path of the version.
    pub(super) entry: Option<Entry>,
}

impl Projects {
    /// Returns the snapshot of a version of a review, and the path in it; `None` if the side is known to have no entry.
    /// For `ours` and `head`, the snapshot may have no entry at the path.
    pub async fn review_side(
        &self,
        project: &Project,
        review: &Review,
        side: ReviewSide,
    ) -> Result<Option<(Snapshot, Vec<u8>)>> {
        let Some(location) = self.version_location(project, review, side).await? else { return Ok(None) };
        let store = self.store.clone();
        let found = crate::projects::blocking(move || find_snapshot(&store, location.snapshot)).await?;
        Ok(Some((found, location.path)))
    }

    /// Returns the snapshot and path of a version; `None` if the side is known to have no entry. For `ours` and `head`,
    /// the snapshot may have no entry at the path.
    pub(super) async fn version_location(
        &self,
        project: &Project,
        review: &Review,
        side: ReviewSide,
    ) -> Result<Option<VersionLocation>> {
        let data = ReviewData::parse(&review.opened.data)?;
        let (base, theirs) = snapshots(&data)?;
        Ok(match side {
            ReviewSide::Base => data.base_path.map(|path| VersionLocation { snapshot: base, path: path.0 }),
            ReviewSide::Theirs => {
                data.theirs_path.map(|path| VersionLocation { snapshot: theirs, path: path.0 })
            }
            ReviewSide::Ours | ReviewSide::Head => {
                let sequence = (side == ReviewSide::Ours).then_some(data.sequence);
                let head = self.head(project, sequence).await?;
                head.map(|head| VersionLocation { snapshot: head.id, path: review.opened.path.clone() })
            }
        })
    }
}

impl VersionLocation {
    /// Opens the tree of the snapshot, and looks the entry up.
    pub(super) fn open(&self, store: &Store) -> Result<EntryInTree> {
        let tree = Tree::of_snapshot(store, &find_snapshot(store, self.snapshot)?)?;
        let entry = tree.entry(&self.path)?;
        Ok(EntryInTree { tree, entry })
    }
}

impl ReviewVersion {
    /// Reads a version. If `location` is `None`, the version has no entry, and gets the path of the review, `path`.
    pub(super) fn read(store: &Store, location: Option<&VersionLocation>, path: &[u8]) -> Result<Self> {
        let Some(location) = location else {
            return Ok(Self::absent(path));
        };
        let EntryInTree { tree, entry } = location.open(store)?;
        let Some(entry) = entry else { return Ok(Self::absent(&location.path)) };
        let mut version = Self { path: location.path.clone(), ..Self::absent(path) };
        match &entry.node {
            Node::File(file) => {
                let (probe, size) = (tree.read_range(file, 0, TEXT_PROBE)?, file.size());
                let is_text = !probe.contains(&0);
                if is_text && size <= INLINE_MAX {
                    version.content = String::from_utf8(tree.read(file)?).ok();
                }
                version.is_text = Some(is_text);
                version.mime = mime_type(&location.path);
            }
            Node::Symlink(link) => version.content = String::from_utf8(link.target.clone()).ok(),
            Node::Directory(_) => {}
        }
        version.hash = content_hash(&entry);
        version.version = version_of(Some(&entry));
        version.entry = Some(entry);
        Ok(version)
    }

    /// Returns a version without an entry.
    fn absent(path: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            entry: None,
            version: version_of(None),
            hash: None,
            mime: None,
            is_text: None,
            content: None,
        }
    }
}

/// Returns the identity of an entry: `absent`, or `v` with a hash of kind, mode, attributes and content.
pub(super) fn version_of(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "absent".to_owned() };
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(&entry.node.mode().to_le_bytes());
    let xattrs = match &entry.node {
        Node::File(file) => {
            add(b"file");
            add(content_hash(entry).unwrap_or_default().as_bytes());
            Some(&file.xattrs)
        }
        Node::Symlink(link) => {
            add(b"symlink");
            add(&link.target);
            None
        }
        Node::Directory(directory) => {
            add(b"directory");
            add(directory.id.as_bytes());
            Some(&directory.xattrs)
        }
    };
    for (name, value) in xattrs.into_iter().flatten() {
        add(name);
        add(value);
    }
    format!("v{}", &hasher.finalize().to_hex()[..32])
}
