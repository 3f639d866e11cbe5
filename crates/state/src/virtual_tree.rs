//! The virtual tree: a mutable tree in memory over a snapshot.
//!
//! A virtual tree has only its changes in memory; everything else is read from the store on access. Clones share
//! everything (copy on write), so that a clone costs as much as copying a pointer. This is for searches: programs that
//! try many actions from saved states. A commit writes the changed files and the directories above them.

mod commit;
mod depth;
mod edit;
mod files;
mod import;
mod preview;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::Batch;
use crate::entry::Entry;
use crate::error::{Result as StoreResult, StoreError};
use crate::gc_guards::Guard;
use crate::id::{NodeId, SnapshotId};
use crate::node::{Extent, NodeKind, NodeRef, TARGET_MAX, Xattrs};
use crate::page::EntryTime;
use crate::quote::shorten_path;
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree::Tree;
use crate::tree_path::{BadPath, DEPTH_MAX, path_names};

pub use files::{AddOutcome, FileToAdd, LinkedFile};

pub(crate) use commit::{commit_snapshot, file_node_ref, symlink_node_ref};

/// Mode of a new directory.
const NEW_DIRECTORY_MODE: u16 = 0o755;
/// Mode of a new file.
const NEW_FILE_MODE: u16 = 0o644;

/// Error of an operation on a virtual tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// There is no entry with this path.
    #[error("`{path}` does not exist")]
    NotFound {
        /// The path.
        path: String,
    },
    /// A component of the path is not a directory.
    #[error("`{path}` is not a directory")]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// The path is a directory, but a file is needed.
    #[error("`{path}` is a directory")]
    IsADirectory {
        /// The path.
        path: String,
    },
    /// A rename would replace a directory that has entries.
    #[error("`{path}` is a directory that is not empty")]
    NotEmpty {
        /// The path.
        path: String,
    },
    /// A directory cannot be moved into itself.
    #[error("`{path}` cannot be moved into itself")]
    IntoItself {
        /// The path.
        path: String,
    },
    /// The path is not inside the tree, or has an invalid name.
    #[error("`{path}` is not a valid path")]
    BadPath {
        /// The path.
        path: String,
    },
    /// The target of a symlink is invalid.
    #[error("a symlink cannot point to `{target}`: a target has 1 to {TARGET_MAX} bytes, and no NUL")]
    BadTarget {
        /// The target, shortened.
        target: String,
    },
    /// The path has too many components.
    #[error("`{path}` is nested too deeply: {DEPTH_MAX} levels are allowed")]
    TooDeep {
        /// The path, shortened.
        path: String,
    },
    /// The content of a file could not be read from its source.
    #[error("cannot read the content of `{path}`: {source}")]
    Content {
        /// Path of the file in the tree.
        path: String,
        /// Error of the source.
        source: std::io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Result<T, E = TreeError> = std::result::Result<T, E>;

impl From<BadPath> for TreeError {
    fn from(bad: BadPath) -> Self {
        match bad {
            BadPath::Invalid(path) => Self::BadPath { path: display_path(&path) },
            BadPath::TooDeep(path) => Self::TooDeep { path: display_path(&path) },
        }
    }
}

fn display_path(path: &[u8]) -> String {
    shorten_path(path).into_owned()
}

/// Attributes of an entry that is added to a virtual tree.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u16,
    /// Modification time. If it is `None`, the current time is used, with two exceptions: [`VirtualTree::put_extents`]
    /// leaves the time unknown, and [`VirtualTree::put_directory`] leaves it unchanged.
    pub modified: Option<Timestamp>,
    /// Extended attributes of the namespace `user.`.
    pub xattrs: Xattrs,
    /// Link label: a number that all hard links to one file have in common; `None` for a file with one name.
    pub link_label: Option<u64>,
}

/// Metadata of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Kind of the entry.
    pub kind: NodeKind,
    /// Permission bits.
    pub mode: u16,
    /// Length of a file or of a symlink's target in bytes; 0 for a directory.
    pub size: u64,
    /// Modification time; `None` if it is not known.
    pub modified: Option<Timestamp>,
    /// Link label: a number that all hard links to one file have in common; `None` for a file with one name.
    pub link_label: Option<u64>,
    /// Extended attributes of the namespace `user.`.
    pub xattrs: Xattrs,
}

/// One name in a directory of a virtual tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Kind of the entry.
    pub kind: NodeKind,
}

/// A mutable tree in memory. Cloning takes constant time; clones are independent.
#[derive(Clone)]
pub struct VirtualTree {
    store: Store,
    /// Protects the stored objects on which the tree is based from garbage collection.
    guard: Arc<Guard>,
    root: Arc<Directory>,
    /// Snapshot that the tree was restored from or last committed as; `None` for a new tree.
    base: Option<SnapshotId>,
    /// Content of files that were added since the last commit, if there are any.
    uncommitted: Option<Arc<UncommittedContent>>,
    /// Upper bound on the number of names in the paths of changed entries.
    depth: usize,
    /// Number of directories created in this tree and in the trees that it was cloned from.
    created_directories: u64,
}

/// Chunks of added files that are not committed yet, shared by clones of the tree.
struct UncommittedContent {
    /// New objects that are collected for a commit.
    batch: Arc<Batch>,
    /// Held during a commit: only one clone at a time may take objects from the batch.
    commit_lock: Mutex<()>,
}

/// A directory that was accessed for writing: its base (the stored directory), and the changes.
#[derive(Clone, Default)]
struct Directory {
    /// Ids of the directory node in the store, and of the node with its modification times; `None` for a new directory.
    base: Option<(NodeId, NodeId)>,
    /// Mode and attributes, if they differ from the base's.
    mode_and_xattrs: Option<(u16, Xattrs)>,
    /// Modification time, if it differs from the base's.
    modified: Option<Timestamp>,
    /// Changed and new entries by name; `None` for removed ones.
    edits: BTreeMap<Box<[u8]>, Option<Child>>,
}

/// An entry of a directory that was changed or moved.
#[derive(Clone)]
enum Child {
    Directory(Arc<Directory>),
    File(Arc<File>),
    Symlink {
        target: Arc<[u8]>,
        modified: Timestamp,
    },
    /// An unchanged entry of the store, moved here: its encoded reference to a node (`node.rs`), and its encoded time
    /// and link label (`page.rs`).
    Stored {
        node_ref: Box<[u8]>,
        time: Box<[u8]>,
    },
}

/// A file with new content or attributes.
#[derive(Clone)]
struct File {
    mode: u16,
    xattrs: Xattrs,
    modified: Option<Timestamp>,
    link_label: Option<u64>,
    /// Extents in the store, from the start of the file.
    stored_extents: Vec<Extent>,
    /// Content after the stored extents, which is not in the store yet.
    unstored_tail: Vec<u8>,
}

impl File {
    fn size(&self) -> u64 {
        self.stored_extents.iter().map(Extent::len).sum::<u64>() + self.unstored_tail.len() as u64
    }
}

/// Encoded node reference and time of an entry of the store, as in [`Child::Stored`].
type StoredEntry = (Box<[u8]>, Box<[u8]>);

/// Result of a path lookup.
enum Lookup<'t> {
    /// An entry that the virtual tree changed or moved.
    Virtual(&'t Child),
    Root(&'t Directory),
    /// An unchanged entry of a stored directory.
    Stored(Entry),
}

impl Directory {
    fn stored(id: NodeId, times: NodeId) -> Self {
        Self { base: Some((id, times)), ..Self::default() }
    }

    fn new(mode: u16, xattrs: Xattrs, modified: Option<Timestamp>) -> Self {
        Self { mode_and_xattrs: Some((mode, xattrs)), modified, ..Self::default() }
    }

    /// Returns true if the directory equals its base.
    fn is_clean(&self) -> bool {
        self.base.is_some()
            && self.edits.is_empty()
            && self.mode_and_xattrs.is_none()
            && self.modified.is_none()
    }

    /// Returns the encoded node reference and time of an entry of the base.
    fn base_entry(&self, store: &Store, name: &[u8]) -> StoreResult<Option<StoredEntry>> {
        let Some((id, times)) = self.base else { return Ok(None) };
        let Some((list, times, index)) = store.find_entry(id, Some(times), name)? else { return Ok(None) };
        let time: Box<[u8]> = match times {
            Some(times) if index < times.len() => times.body(index).into(),
            _ => EntryTime::Unknown.encode().into(),
        };
        Ok(Some((list.body(index).into(), time)))
    }

    /// Returns the child `name`, changed or not, so that it can be inserted into another directory; `None` if there is
    /// none.
    fn child(&self, store: &Store, name: &[u8]) -> StoreResult<Option<Child>> {
        match self.edits.get(name) {
            Some(edit) => Ok(edit.clone()),
            None => {
                Ok(self.base_entry(store, name)?.map(|(node_ref, time)| Child::Stored { node_ref, time }))
            }
        }
    }

    fn put(&mut self, name: &[u8], child: Child) {
        self.edits.insert(name.into(), Some(child));
        self.modified = Some(Timestamp::now());
    }

    /// Removes a name. A name that the base has is recorded as removed; otherwise only the edit is dropped.
    fn remove(&mut self, store: &Store, name: &[u8]) -> StoreResult<()> {
        if self.base_entry(store, name)?.is_some() {
            self.edits.insert(name.into(), None);
        } else {
            self.edits.remove(name);
        }
        self.modified = Some(Timestamp::now());
        Ok(())
    }
}

impl Store {
    /// Opens the tree of a snapshot for changes, in constant time.
    pub fn restore(&self, id: &SnapshotId) -> StoreResult<VirtualTree> {
        // The guard is taken first, so that the snapshot's objects cannot be deleted in between.
        let guard = Arc::new(self.guard()?);
        let snapshot = self.snapshot(id)?;
        let root = Directory::stored(snapshot.tree.root(), snapshot.times);
        Ok(VirtualTree {
            store: self.clone(),
            guard,
            root: Arc::new(root),
            base: Some(snapshot.id),
            uncommitted: None,
            depth: 0,
            created_directories: 0,
        })
    }

    /// Creates an empty tree.
    pub fn empty_tree(&self) -> StoreResult<VirtualTree> {
        let guard = Arc::new(self.guard()?);
        let root = Arc::new(Directory::new(NEW_DIRECTORY_MODE, Xattrs::new(), Some(Timestamp::now())));
        Ok(VirtualTree {
            store: self.clone(),
            guard,
            root,
            base: None,
            uncommitted: None,
            depth: 0,
            created_directories: 0,
        })
    }
}

impl VirtualTree {
    /// Opens a stored tree for changes, in constant time. The first commit has no parents, unless the caller sets some.
    pub fn over(tree: &Tree) -> StoreResult<Self> {
        let Some((id, times)) = tree.ids() else {
            return Err(StoreError::Refused("a tree without times cannot be changed".to_owned()));
        };
        Ok(Self {
            store: tree.store().clone(),
            guard: tree.guard(),
            root: Arc::new(Directory::stored(id, times)),
            base: None,
            uncommitted: None,
            depth: 0,
            created_directories: 0,
        })
    }

    /// Returns the snapshot that this tree was restored from or last committed as.
    pub fn base(&self) -> Option<SnapshotId> {
        self.base
    }

    /// Returns the number of directories created in this tree and in the trees that it was cloned from, whether
    /// or not they still exist.
    pub(crate) fn created_directories(&self) -> u64 {
        self.created_directories
    }

    /// Sets the entry at `path`. Creates missing parent directories.
    fn put(&mut self, path: &[u8], child: Child) -> Result<()> {
        match split(path)? {
            Some((parent, name)) => {
                self.directory_mut(&parent)?.put(name, child);
                Ok(())
            }
            None => Err(TreeError::IsADirectory { path: "/".to_owned() }),
        }
    }

    /// Returns the directory at the path of `names` for changes. Creates missing directories. The directories on the
    /// path are no longer shared with clones of the tree.
    fn directory_mut(&mut self, names: &[&[u8]]) -> Result<&mut Directory> {
        self.depth = self.depth.max(names.len());
        let store = self.store.clone();
        let mut directory = Arc::make_mut(&mut self.root);
        for (depth, name) in names.iter().enumerate() {
            let not_a_directory =
                || TreeError::NotADirectory { path: display_path(&names[..=depth].join(&b'/')) };
            if !matches!(directory.edits.get(*name), Some(Some(Child::Directory(_)))) {
                let subdirectory = match directory.child(&store, name)? {
                    None => {
                        let now = Timestamp::now();
                        directory.modified = Some(now);
                        self.created_directories += 1;
                        Directory::new(NEW_DIRECTORY_MODE, Xattrs::new(), Some(now))
                    }
                    Some(Child::Stored { node_ref, time }) => {
                        stored_directory(&node_ref, &time)?.ok_or_else(not_a_directory)?
                    }
                    Some(_) => return Err(not_a_directory()),
                };
                directory.edits.insert((*name).into(), Some(Child::Directory(Arc::new(subdirectory))));
            }
            directory = match directory.edits.get_mut(*name) {
                Some(Some(Child::Directory(subdirectory))) => Arc::make_mut(subdirectory),
                _ => return Err(not_a_directory()),
            };
        }
        Ok(directory)
    }
}

type ParentAndName<'p> = (Vec<&'p [u8]>, &'p [u8]);

/// Splits a path into the names of its parent and its last name; `None` for the root.
fn split(path: &[u8]) -> Result<Option<ParentAndName<'_>>> {
    let mut names = path_names(path)?;
    Ok(names.pop().map(|name| (names, name)))
}

/// Decodes the node reference of an entry.
fn decode_node_ref(node_ref: &[u8]) -> StoreResult<NodeRef<'_>> {
    NodeRef::decode(node_ref)
        .map_err(|source| StoreError::Undecodable { what: "an entry".to_owned(), source })
}

/// Decodes an entry of the store as a directory; `None` for other kinds.
fn stored_directory(node_ref: &[u8], time: &[u8]) -> StoreResult<Option<Directory>> {
    let decode_error = |source| StoreError::Undecodable { what: "an entry".to_owned(), source };
    match (NodeRef::decode(node_ref).map_err(decode_error)?, EntryTime::decode(time).map_err(decode_error)?) {
        (NodeRef::Directory(id), EntryTime::Directory(times)) => Ok(Some(Directory::stored(id, times))),
        (NodeRef::Directory(_), _) => {
            Err(StoreError::Refused("a directory of the tree has no times".to_owned()))
        }
        _ => Ok(None),
    }
}
