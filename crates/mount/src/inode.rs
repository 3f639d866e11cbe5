//! Inodes in memory. They hold only the data that is needed to answer requests, because there is one for
//! every file that the kernel remembers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use workspace_state::{DirectoryNode, Entry, Node, NodeId, Snapshot, SnapshotId, Timestamp, Xattrs};

use crate::content::Content;
use crate::identity::Identity;
use crate::pinned_snapshot::PinnedSnapshot;

const BLOCK_SIZE: u32 = 4096;
/// Mode bits that are always shown: permissions and the sticky bit.
const MODE_BITS: u16 = 0o1777;
/// Mode bits that are shown only with [`MountOptions::show_set_id_bits`](crate::MountOptions::show_set_id_bits).
const SET_ID: u16 = 0o6000;

/// A file, directory or symlink that the kernel may refer to.
pub(crate) struct Inode {
    /// Hash from which the inode number is derived: of the location of the file or, if it is hard-linked, of what
    /// all its names have in common.
    pub(crate) identity: Identity,
    pub(crate) body: Body,
    mode: u16,
    /// True if the file has a link label, so that it may have more than one name.
    linked: bool,
    modified: Timestamp,
    /// Extended attributes; `None` if there are none.
    xattrs: Option<Box<Xattrs>>,
}

/// Kind and content of an inode.
pub(crate) enum Body {
    Directory(Box<Directory>),
    File {
        content: Content,
        /// Keeps the snapshot pinned as long as the inode exists.
        _snapshot: Arc<PinnedSnapshot>,
    },
    /// Target of a symlink.
    Symlink(Box<[u8]>),
    /// A snapshot that the kernel has seen in a listing but not used yet, so that it is not pinned.
    UnpinnedSnapshot,
}

/// Directory below a snapshot.
pub(crate) struct Directory {
    pub(crate) id: NodeId,
    /// Node of the directory in the tree of modification times; `None` if they were not stored.
    pub(crate) times: Option<NodeId>,
    pub(crate) snapshot: Arc<PinnedSnapshot>,
    /// Number of entries, which is reported as the size.
    entries: u64,
}

/// Owner of all files in the mount, and the mode bits that are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
    mode_bits: u16,
}

impl Owner {
    pub(crate) fn new((user, group): (u32, u32)) -> Self {
        Self { user, group, mode_bits: MODE_BITS }
    }

    pub(crate) fn of_process() -> Self {
        Self::new((rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()))
    }

    pub(crate) fn with_set_id_bits(self, show: bool) -> Self {
        Self { mode_bits: if show { MODE_BITS | SET_ID } else { MODE_BITS }, ..self }
    }
}

impl Inode {
    /// Creates the inode of a tree entry.
    pub(crate) fn of_entry(identity: Identity, snapshot: &Arc<PinnedSnapshot>, entry: Entry) -> Self {
        let modified = entry.modified.unwrap_or(snapshot.time);
        let mode = entry.node.mode();
        // All names of a file share the link label. It is read from the tree of times, which may not match
        // the tree of a damaged snapshot, so the kind is checked.
        let linked = entry.link_label.is_some() && !matches!(entry.node, Node::Directory(_));
        let (body, xattrs) = match entry.node {
            Node::Directory(node) => Self::directory(node, Arc::clone(snapshot)),
            Node::File(file) => {
                let content = Content::new(&file.extents);
                (Body::File { content, _snapshot: Arc::clone(snapshot) }, file.xattrs)
            }
            Node::Symlink(link) => (Body::Symlink(link.target.into()), Xattrs::new()),
        };
        let xattrs = (!xattrs.is_empty()).then(|| Box::new(xattrs));
        Self { identity, body, mode, linked, modified, xattrs }
    }

    fn directory(node: DirectoryNode, snapshot: Arc<PinnedSnapshot>) -> (Body, Xattrs) {
        let directory = Directory { id: node.id, times: node.times, snapshot, entries: node.entries };
        (Body::Directory(Box::new(directory)), node.xattrs)
    }

    /// Creates the inode of a snapshot that is only listed at the root.
    pub(crate) fn of_unpinned_snapshot(snapshot: &Snapshot) -> Self {
        Self {
            identity: Identity::of_snapshot(&snapshot.id),
            body: Body::UnpinnedSnapshot,
            mode: 0o755,
            linked: false,
            modified: snapshot.time,
            xattrs: None,
        }
    }

    /// Creates the inode of a symlink in the root directory of the mount: `name` is a reference, or a prefix of a
    /// snapshot's id.
    pub(crate) fn root_symlink(name: &[u8], target: &SnapshotId) -> Self {
        Self {
            identity: Identity::of_root_symlink(name, target),
            body: Body::Symlink(target.to_string().into_bytes().into()),
            mode: 0o777,
            linked: false,
            modified: Timestamp(0),
            xattrs: None,
        }
    }

    pub(crate) fn xattrs(&self) -> Option<&Xattrs> {
        self.xattrs.as_deref()
    }

    pub(crate) fn attributes(&self, ino: u64, owner: Owner) -> FileAttr {
        // Type, size, and number of bytes that are not in holes.
        let (kind, size, stored) = match &self.body {
            Body::Directory(directory) => (FileType::Directory, directory.entries, 0),
            Body::UnpinnedSnapshot => (FileType::Directory, 0, 0),
            Body::File { content, .. } => (FileType::RegularFile, content.size(), content.data_size()),
            Body::Symlink(target) => (FileType::Symlink, target.len() as u64, 0),
        };
        FileAttr {
            blocks: stored.div_ceil(512),
            nlink: if self.linked { 2 } else { 1 },
            size,
            ..attributes_without_content(ino, kind, self.mode & owner.mode_bits, self.modified, owner)
        }
    }
}

/// Returns attributes with size 0, no blocks and one link. [`Inode::attributes`] sets the real values.
pub(crate) fn attributes_without_content(
    ino: u64,
    kind: FileType,
    mode: u16,
    modified: Timestamp,
    owner: Owner,
) -> FileAttr {
    let time = system_time(modified);
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: mode,
        nlink: 1,
        uid: owner.user,
        gid: owner.group,
        rdev: 0,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(time.0.unsigned_abs());
    if time.0 < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}
