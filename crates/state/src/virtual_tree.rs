//! The virtual tree: a mutable tree in memory over a snapshot.
//!
//! A tree holds only what was changed; everything else stays in the store until it is touched. Clones
//! share all of it (copy on write), so a search forks states for the price of a pointer. Committing writes
//! the changed files and the directories on the way to them.

mod commit;
mod edit;
mod files;
mod import;
mod preview;
mod read;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::batch::Batch;
use crate::error::{Result as StoreResult, StoreError};
use crate::id::{NodeId, SnapshotId};
use crate::node::{Extent, NodeKind, NodeRef, Xattrs};
use crate::page::EntryTime;
use crate::quote::shorten_path;
use crate::session::Guard;
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree::{BadPath, DEPTH_MAX, Entry, Tree, path_names};

pub use files::{FileAt, SameFile, Taken};

pub(crate) use commit::{commit_snapshot, file_reference, symlink_reference};

const NEW_DIRECTORY: u16 = 0o755;
const NEW_FILE: u16 = 0o644;

/// Why an operation on a virtual tree was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// Nothing has this path.
    #[error("`{path}` does not exist")]
    NotFound {
        /// The path.
        path: String,
    },
    /// Something on the way is no directory.
    #[error("`{path}` is not a directory")]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// A directory is where a file is needed.
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
    /// A directory cannot become part of itself.
    #[error("`{path}` cannot be moved into itself")]
    IntoItself {
        /// The path.
        path: String,
    },
    /// Not a path inside a tree, or no valid symlink target.
    #[error("`{path}` is not a valid path")]
    BadPath {
        /// What was given.
        path: String,
    },
    /// More names than a path may have.
    #[error("`{path}` is nested too deeply: {DEPTH_MAX} levels are allowed")]
    TooDeep {
        /// The path, shortened.
        path: String,
    },
    /// Content could not be read from where it comes.
    #[error("cannot read the content of `{path}`: {source}")]
    Content {
        /// The path it was meant for.
        path: String,
        /// What the source said.
        source: std::io::Error,
    },
    /// The store underneath failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Result<T, E = TreeError> = std::result::Result<T, E>;

impl From<BadPath> for TreeError {
    fn from(bad: BadPath) -> Self {
        match bad {
            BadPath::Invalid(path) => Self::BadPath { path: shown(&path) },
            BadPath::TooDeep(path) => Self::TooDeep { path: shown(&path) },
        }
    }
}

fn shown(path: &[u8]) -> String {
    shorten_path(path).into_owned()
}

/// What an importer says about an entry.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u16,
    /// When it was modified; now, when not said.
    pub modified: Option<Timestamp>,
    /// User extended attributes.
    pub xattrs: Xattrs,
    /// Equal for names of one file.
    pub link: Option<u64>,
}

/// What `stat` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits.
    pub mode: u16,
    /// Bytes of a file or of a symlink's target; 0 for a directory.
    pub size: u64,
    /// When it was modified, where known.
    pub modified: Option<Timestamp>,
    /// Equal for names of one file.
    pub link: Option<u64>,
    /// User extended attributes.
    pub xattrs: Xattrs,
}

/// One name in a directory of a virtual tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: NodeKind,
}

/// A mutable tree in memory. Cloning takes constant time; clones are independent.
#[derive(Clone)]
pub struct VirtualTree {
    store: Store,
    guard: Arc<Guard>,
    root: Arc<Directory>,
    base: Option<SnapshotId>,
    staging: Option<Arc<Staging>>,
    /// How deep changes go.
    depth: usize,
    /// Directories that were made because a path needed them.
    made_directories: u64,
}

/// Chunks of content that was streamed in, on their way to the store.
struct Staging {
    batch: Arc<Batch>,
    turn: Mutex<()>,
}

/// A directory that was touched: what the store has, and what differs.
#[derive(Clone, Default)]
struct Directory {
    base: Option<(NodeId, NodeId)>,
    /// Mode and attributes, where they differ from the base's.
    head: Option<(u16, Xattrs)>,
    modified: Option<Timestamp>,
    /// Changed and new names; `None` for what is gone.
    edits: BTreeMap<Box<[u8]>, Option<Child>>,
}

#[derive(Clone)]
enum Child {
    Directory(Arc<Directory>),
    File(Arc<File>),
    Symlink {
        target: Arc<[u8]>,
        modified: Timestamp,
    },
    /// As the store has it, moved here.
    Stored {
        reference: Box<[u8]>,
        time: Box<[u8]>,
    },
}

/// A file with new content or attributes.
#[derive(Clone)]
struct File {
    mode: u16,
    xattrs: Xattrs,
    modified: Option<Timestamp>,
    link: Option<u64>,
    /// What is in the store already, from the start of the file.
    kept: Vec<Extent>,
    /// What follows.
    tail: Vec<u8>,
}

impl File {
    fn size(&self) -> u64 {
        self.kept.iter().map(Extent::len).sum::<u64>() + self.tail.len() as u64
    }
}

/// An entry's reference and time as the store has them.
type Encoded = (Box<[u8]>, Box<[u8]>);

/// What a path leads to.
enum Found<'t> {
    Virtual(&'t Child),
    Root(&'t Directory),
    Stored(Entry),
}

impl Directory {
    fn stored(id: NodeId, times: NodeId) -> Self {
        Self { base: Some((id, times)), ..Self::default() }
    }

    fn new(mode: u16, xattrs: Xattrs, modified: Option<Timestamp>) -> Self {
        Self { head: Some((mode, xattrs)), modified, ..Self::default() }
    }

    fn is_clean(&self) -> bool {
        self.base.is_some() && self.edits.is_empty() && self.head.is_none() && self.modified.is_none()
    }

    /// The encoded reference and time of an entry of the base.
    fn base_entry(&self, store: &Store, name: &[u8]) -> StoreResult<Option<Encoded>> {
        let Some((id, times)) = self.base else { return Ok(None) };
        let Some((page, times, at)) = store.find_entry(id, Some(times), name)? else { return Ok(None) };
        let time: Box<[u8]> = match times {
            Some(times) if at < times.len() => times.body(at).into(),
            _ => EntryTime::Unknown.encode().into(),
        };
        Ok(Some((page.body(at).into(), time)))
    }

    /// The child as something that can be put elsewhere.
    fn child(&self, store: &Store, name: &[u8]) -> StoreResult<Option<Child>> {
        match self.edits.get(name) {
            Some(edit) => Ok(edit.clone()),
            None => {
                Ok(self.base_entry(store, name)?.map(|(reference, time)| Child::Stored { reference, time }))
            }
        }
    }

    fn put(&mut self, name: &[u8], child: Child) {
        self.edits.insert(name.into(), Some(child));
        self.modified = Some(Timestamp::now());
    }

    /// Takes a name away. A name the base does not have needs no mark.
    fn take(&mut self, store: &Store, name: &[u8]) -> StoreResult<()> {
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
    /// The tree of a snapshot, ready to be changed. Takes the same time for any size of tree.
    pub fn restore(&self, id: &SnapshotId) -> StoreResult<VirtualTree> {
        // The guard comes first: what the snapshot names cannot go away behind it.
        let guard = Arc::new(self.guard()?);
        let snapshot = self.snapshot(id)?;
        let root = Directory::stored(snapshot.tree.root(), snapshot.times);
        Ok(VirtualTree {
            store: self.clone(),
            guard,
            root: Arc::new(root),
            base: Some(snapshot.id),
            staging: None,
            depth: 0,
            made_directories: 0,
        })
    }

    /// A tree with nothing in it.
    pub fn empty_tree(&self) -> StoreResult<VirtualTree> {
        let guard = Arc::new(self.guard()?);
        let root = Arc::new(Directory::new(NEW_DIRECTORY, Xattrs::new(), Some(Timestamp::now())));
        Ok(VirtualTree {
            store: self.clone(),
            guard,
            root,
            base: None,
            staging: None,
            depth: 0,
            made_directories: 0,
        })
    }
}

impl VirtualTree {
    /// A tree ready to be changed. Takes the same time for any size of tree.
    pub fn over(tree: &Tree) -> StoreResult<Self> {
        let Some((id, times)) = tree.ids_with_times() else {
            return Err(StoreError::Refused("a tree can only be changed with its times".to_owned()));
        };
        Ok(Self {
            store: tree.store().clone(),
            guard: tree.guard(),
            root: Arc::new(Directory::stored(id, times)),
            base: None,
            staging: None,
            depth: 0,
            made_directories: 0,
        })
    }

    /// The snapshot this tree was restored from or last committed as.
    pub fn base(&self) -> Option<SnapshotId> {
        self.base
    }

    /// Number of directories that were made in this tree and its ancestors, whether they are still there or not.
    pub(crate) fn made_directories(&self) -> u64 {
        self.made_directories
    }

    fn put(&mut self, path: &[u8], child: Child) -> Result<()> {
        match split(path)? {
            Some((parent, name)) => {
                self.directory_mut(&parent)?.put(name, child);
                Ok(())
            }
            None => Err(TreeError::IsADirectory { path: "/".to_owned() }),
        }
    }

    /// The directory at `names`, held by this tree alone, made where it is missing.
    fn directory_mut(&mut self, names: &[&[u8]]) -> Result<&mut Directory> {
        self.depth = self.depth.max(names.len());
        let store = self.store.clone();
        let mut directory = Arc::make_mut(&mut self.root);
        for (depth, name) in names.iter().enumerate() {
            let not_a_directory = || TreeError::NotADirectory { path: shown(&names[..=depth].join(&b'/')) };
            if !matches!(directory.edits.get(*name), Some(Some(Child::Directory(_)))) {
                let below = match directory.child(&store, name)? {
                    None => {
                        let now = Timestamp::now();
                        directory.modified = Some(now);
                        self.made_directories += 1;
                        Directory::new(NEW_DIRECTORY, Xattrs::new(), Some(now))
                    }
                    Some(Child::Stored { reference, time }) => {
                        stored_directory(&reference, &time)?.ok_or_else(not_a_directory)?
                    }
                    Some(_) => return Err(not_a_directory()),
                };
                directory.edits.insert((*name).into(), Some(Child::Directory(Arc::new(below))));
            }
            directory = match directory.edits.get_mut(*name) {
                Some(Some(Child::Directory(below))) => Arc::make_mut(below),
                _ => return Err(not_a_directory()),
            };
        }
        Ok(directory)
    }
}

type ParentAndName<'p> = (Vec<&'p [u8]>, &'p [u8]);

/// A path's parent names and its own; nothing for the root.
fn split(path: &[u8]) -> Result<Option<ParentAndName<'_>>> {
    let mut names = path_names(path)?;
    Ok(names.pop().map(|name| (names, name)))
}

/// How an entry of the store refers to its node.
fn stored_kind(reference: &[u8]) -> StoreResult<NodeRef<'_>> {
    NodeRef::decode(reference)
        .map_err(|source| StoreError::Undecodable { what: "an entry".to_owned(), source })
}

fn stored_directory(reference: &[u8], time: &[u8]) -> StoreResult<Option<Directory>> {
    let wrong = |source| StoreError::Undecodable { what: "an entry".to_owned(), source };
    match (NodeRef::decode(reference).map_err(wrong)?, EntryTime::decode(time).map_err(wrong)?) {
        (NodeRef::Directory(id), EntryTime::Directory(times)) => Ok(Some(Directory::stored(id, times))),
        (NodeRef::Directory(_), _) => Err(StoreError::Refused("a directory without times".to_owned())),
        _ => Ok(None),
    }
}
