//! The virtual tree: a mutable tree in memory over a snapshot.
//!
//! A tree holds only what was changed; everything else stays in the store until it is touched. Clones
//! share all of it (copy on write), so a search forks states for the price of a pointer. Committing writes
//! the changed files and the directories on the way to them.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use crate::batch::{Batch, Contents};
use crate::change::Change;
use crate::content::{self, ContentWriter};
use crate::error::{Result as StoreResult, StoreError};
use crate::id::{NodeId, SnapshotId, TreeId};
use crate::node::{
    Extent, FileNode, INLINE_MAX, MODE_BITS, NodeKind, NodeRef, SymlinkNode, Xattrs, is_valid_target,
};
use crate::page::{EntryTime, Head};
use crate::record::Kind;
use crate::references_of::{ObjectId, references_of};
use crate::rewrite::{Edit, rewrite_directory};
use crate::session::Guard;
use crate::snapshot::{NewSnapshot, Snapshot, Timestamp};
use crate::store::Store;
use crate::tree::{Entry, Node, path_names};

/// Levels that fit on any stack.
const SHALLOW: usize = 100;
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

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
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
}

/// Chunks of content that was streamed in, on their way to the store.
struct Staging {
    batch: Batch,
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
        })
    }

    /// A tree with nothing in it.
    pub fn empty_tree(&self) -> StoreResult<VirtualTree> {
        let guard = Arc::new(self.guard()?);
        let root = Arc::new(Directory::new(NEW_DIRECTORY, Xattrs::new(), Some(Timestamp::now())));
        Ok(VirtualTree { store: self.clone(), guard, root, base: None, staging: None, depth: 0 })
    }
}

impl VirtualTree {
    /// The snapshot this tree was restored from or last committed as.
    pub fn base(&self) -> Option<SnapshotId> {
        self.base
    }

    /// Writes a whole file, making missing parents. An existing file keeps its mode and attributes.
    pub fn write(&mut self, path: impl AsRef<[u8]>, content: impl Into<Vec<u8>>) -> Result<()> {
        let path = path.as_ref();
        let (mode, xattrs) = match self.find(path)? {
            Some(found) => {
                let stat = self.stat_found(found)?;
                match stat.kind {
                    NodeKind::Directory => return Err(TreeError::IsADirectory { path: shown(path) }),
                    NodeKind::File => (stat.mode, stat.xattrs),
                    NodeKind::Symlink => (NEW_FILE, Xattrs::new()),
                }
            }
            None => (NEW_FILE, Xattrs::new()),
        };
        let modified = Some(Timestamp::now());
        let file = File { mode, xattrs, modified, link: None, kept: Vec::new(), tail: content.into() };
        self.put(path, Child::File(Arc::new(file)))
    }

    /// Adds to the end of a file, making it if it is not there. Costs what is added, not what exists.
    pub fn append(&mut self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let mut file = match self.find(path)? {
            None => return self.write(path, content),
            Some(Found::Virtual(Child::File(file))) => Arc::clone(file),
            Some(found) => Arc::new(self.file_for_appending(path, found)?),
        };
        if file.tail.is_empty() && !file.kept.is_empty() {
            // All of it is in the store: the last chunk was cut by an end that is no end any more.
            let (kept, from) = content::stable_part(&file.kept);
            let tail = self.content_of(&file.kept, from, u64::MAX)?;
            file = Arc::new(File { kept, tail, ..File::clone(&file) });
        }
        let edited = Arc::make_mut(&mut file);
        edited.tail.extend_from_slice(content);
        edited.modified = Some(Timestamp::now());
        edited.link = None;
        self.put(path, Child::File(file))
    }

    fn file_for_appending(&self, path: &[u8], found: Found<'_>) -> Result<File> {
        let entry = self.entry_found(found)?;
        let Node::File(node) = entry.node else {
            return Err(match entry.node {
                Node::Directory(_) => TreeError::IsADirectory { path: shown(path) },
                _ => TreeError::BadPath { path: shown(path) },
            });
        };
        let (kept, from) = content::stable_part(&node.extents);
        let tail = self.store.read_extents(&node.extents, from, u64::MAX)?;
        Ok(File { mode: node.mode, xattrs: node.xattrs, modified: None, link: None, kept, tail })
    }

    /// The content of a file.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.read_range(path, 0, u64::MAX)
    }

    /// Up to `len` bytes of a file from `offset`.
    pub fn read_range(&self, path: impl AsRef<[u8]>, offset: u64, len: u64) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let found = self.must_find(path)?;
        if let Found::Virtual(Child::File(file)) = &found {
            return self.read_file(file, offset, len);
        }
        match self.entry_found(found)?.node {
            Node::File(node) => Ok(self.store.read_extents(&node.extents, offset, len)?),
            Node::Directory(_) => Err(TreeError::IsADirectory { path: shown(path) }),
            Node::Symlink(_) => Err(TreeError::BadPath { path: shown(path) }),
        }
    }

    fn read_file(&self, file: &File, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut out = self.content_of(&file.kept, offset, len)?;
        let kept: u64 = file.kept.iter().map(Extent::len).sum();
        let from = offset.saturating_sub(kept).min(file.tail.len() as u64) as usize;
        let left = len.saturating_sub(out.len() as u64);
        let to = from + usize::try_from(left).unwrap_or(usize::MAX).min(file.tail.len() - from);
        if offset.saturating_add(len) > kept {
            out.extend_from_slice(&file.tail[from..to]);
        }
        Ok(out)
    }

    /// Reads chunks, some of which may still wait to be committed.
    fn content_of(&self, extents: &[Extent], offset: u64, len: u64) -> Result<Vec<u8>> {
        match &self.staging {
            Some(staging) => Ok(staging.batch.read_extents(extents, offset, len)?),
            None => Ok(self.store.read_extents(extents, offset, len)?),
        }
    }

    /// Where a symlink points.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let found = self.must_find(path)?;
        if let Found::Virtual(Child::Symlink { target, .. }) = &found {
            return Ok(target.to_vec());
        }
        match self.entry_found(found)?.node {
            Node::Symlink(link) => Ok(link.target),
            _ => Err(TreeError::BadPath { path: shown(path) }),
        }
    }

    /// Removes a file, a symlink, or a directory with all it holds.
    pub fn remove(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.must_find(path)?;
        let Some((parent, name)) = split(path)? else {
            return Err(TreeError::BadPath { path: shown(path) });
        };
        let store = self.store.clone();
        Ok(self.directory_mut(&parent)?.take(&store, name)?)
    }

    /// Moves something, replacing a file or an empty directory at `to` as `rename(2)` does. A directory
    /// moves in constant time.
    pub fn rename(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = path_names(from).map_err(|_| TreeError::BadPath { path: shown(from) })?;
        let target = path_names(to).map_err(|_| TreeError::BadPath { path: shown(to) })?;
        let is_directory = self.stat(from)?.kind == NodeKind::Directory;
        if source == target {
            return Ok(());
        }
        if source.is_empty() || target.is_empty() || target.starts_with(&source) {
            return Err(TreeError::IntoItself { path: shown(from) });
        }
        self.check_replaceable(to, is_directory)?;
        // The target's parent first: after that nothing can refuse, and the source is not lost.
        self.directory_mut(&target[..target.len() - 1])?;
        let store = self.store.clone();
        let (name, parent) = source.split_last().unwrap_or_else(|| unreachable!("a path with names"));
        let child = {
            let parent = self.directory_mut(parent)?;
            let child = parent.child(&store, name)?;
            parent.take(&store, name)?;
            child
        };
        if matches!(child, Some(Child::Directory(_))) {
            // What moves may be as deep as anything so far.
            self.depth += target.len();
        }
        match child {
            Some(child) => self.put(to, child),
            None => Err(TreeError::NotFound { path: shown(from) }),
        }
    }

    fn check_replaceable(&self, path: &[u8], by_directory: bool) -> Result<()> {
        let Some(found) = self.find(path)? else { return Ok(()) };
        let is_directory = self.stat_found(found)?.kind == NodeKind::Directory;
        match (by_directory, is_directory) {
            (false, false) => Ok(()),
            (false, true) => Err(TreeError::IsADirectory { path: shown(path) }),
            (true, false) => Err(TreeError::NotADirectory { path: shown(path) }),
            (true, true) if self.list(path)?.is_empty() => Ok(()),
            (true, true) => Err(TreeError::NotEmpty { path: shown(path) }),
        }
    }

    /// Makes a directory and its missing parents. One that is there already is left as it is.
    pub fn mkdir(&mut self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let names = path_names(path).map_err(|_| TreeError::BadPath { path: shown(path) })?;
        self.directory_mut(&names).map(drop)
    }

    /// Makes a symlink, replacing a file or symlink.
    pub fn symlink(&mut self, path: impl AsRef<[u8]>, target: impl Into<Vec<u8>>) -> Result<()> {
        self.put_symlink(path, target, None)
    }

    /// Changes permission bits of a file or directory.
    pub fn chmod(&mut self, path: impl AsRef<[u8]>, mode: u16) -> Result<()> {
        let path = path.as_ref();
        let mode = mode & MODE_BITS;
        let found = self.must_find(path)?;
        let stat = self.stat_found(found)?;
        match stat.kind {
            NodeKind::Symlink => Err(TreeError::BadPath { path: shown(path) }),
            NodeKind::Directory => {
                let names = path_names(path).map_err(|_| TreeError::BadPath { path: shown(path) })?;
                self.directory_mut(&names)?.head = Some((mode, stat.xattrs));
                Ok(())
            }
            NodeKind::File => {
                let mut file = match self.must_find(path)? {
                    Found::Virtual(Child::File(file)) => Arc::clone(file),
                    found => Arc::new(self.file_as_is(path, found)?),
                };
                Arc::make_mut(&mut file).mode = mode;
                self.put(path, Child::File(file))
            }
        }
    }

    fn file_as_is(&self, path: &[u8], found: Found<'_>) -> Result<File> {
        let entry = self.entry_found(found)?;
        let Node::File(node) = entry.node else { return Err(TreeError::BadPath { path: shown(path) }) };
        Ok(File {
            mode: node.mode,
            xattrs: node.xattrs,
            modified: entry.modified,
            link: entry.link,
            kept: node.extents,
            tail: Vec::new(),
        })
    }

    /// The names in a directory, sorted.
    pub fn list(&self, path: impl AsRef<[u8]>) -> Result<Vec<VirtualEntry>> {
        let path = path.as_ref();
        let not_a_directory = || TreeError::NotADirectory { path: shown(path) };
        let (base, edits) = match self.must_find(path)? {
            Found::Root(directory) => (directory.base, Some(&directory.edits)),
            Found::Virtual(Child::Directory(directory)) => (directory.base, Some(&directory.edits)),
            found => match self.entry_found(found)?.node {
                Node::Directory(node) => (node.times.map(|times| (node.id, times)), None),
                _ => return Err(not_a_directory()),
            },
        };
        let mut names: BTreeMap<Vec<u8>, NodeKind> = BTreeMap::new();
        if let Some((id, times)) = base {
            self.store.for_each_leaf(id, Some(times), &mut |page, _| {
                for at in 0..page.len() {
                    let kind = page
                        .node_ref(at)
                        .map(|reference| reference.kind())
                        .map_err(|source| StoreError::Undecodable { what: format!("node {id}"), source })?;
                    names.insert(page.name(at).to_vec(), kind);
                }
                Ok(())
            })?;
        }
        for (name, edit) in edits.into_iter().flatten() {
            match edit {
                Some(child) => drop(names.insert(name.to_vec(), self.kind_of(child)?)),
                None => drop(names.remove(&name[..])),
            }
        }
        Ok(names.into_iter().map(|(name, kind)| VirtualEntry { name, kind }).collect())
    }

    /// What is at `path`.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat> {
        let found = self.must_find(path.as_ref())?;
        self.stat_found(found)
    }

    /// Whether anything is at `path`.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.find(path.as_ref())?.is_some())
    }

    /// Puts a file whose content is streamed: memory does not grow with its size.
    pub fn put_file(
        &mut self,
        path: impl AsRef<[u8]>,
        content: &mut dyn Read,
        attributes: Attributes,
    ) -> Result<()> {
        let path = path.as_ref();
        let staging = self.staging()?;
        let mut writer = ContentWriter::new(&staging.batch);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let len = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(TreeError::Content { path: shown(path), source }),
            };
            writer.push(&buffer[..len])?;
        }
        let file = File {
            mode: attributes.mode & MODE_BITS,
            xattrs: attributes.xattrs,
            modified: Some(attributes.modified.unwrap_or_else(Timestamp::now)),
            link: attributes.link,
            kept: writer.finish()?,
            tail: Vec::new(),
        };
        self.put(path, Child::File(Arc::new(file)))
    }

    /// Makes a directory, or changes the attributes of one that is there.
    pub fn put_directory(&mut self, path: impl AsRef<[u8]>, attributes: Attributes) -> Result<()> {
        let path = path.as_ref();
        let names = path_names(path).map_err(|_| TreeError::BadPath { path: shown(path) })?;
        let directory = self.directory_mut(&names)?;
        directory.head = Some((attributes.mode & MODE_BITS, attributes.xattrs));
        if attributes.modified.is_some() {
            directory.modified = attributes.modified;
        }
        Ok(())
    }

    /// Puts a symlink with a time.
    pub fn put_symlink(
        &mut self,
        path: impl AsRef<[u8]>,
        target: impl Into<Vec<u8>>,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        let path = path.as_ref();
        let target: Vec<u8> = target.into();
        if !is_valid_target(&target) {
            return Err(TreeError::BadPath { path: shown(&target) });
        }
        self.check_replaceable(path, false)?;
        let modified = modified.unwrap_or_else(Timestamp::now);
        self.put(path, Child::Symlink { target: target.into(), modified })
    }

    /// Puts an entry of another tree of this store at `path` without reading it: a file, a symlink, or a
    /// directory with all it holds.
    pub fn graft(&mut self, path: impl AsRef<[u8]>, entry: &Entry) -> Result<()> {
        self.check_live(path.as_ref(), &entry.node)?;
        let time = match (&entry.node, entry.modified) {
            (Node::Directory(node), _) => node.times.map_or(EntryTime::Unknown, EntryTime::Directory),
            (_, Some(time)) => EntryTime::Modified { time, link: entry.link },
            (_, None) => EntryTime::Unknown,
        };
        let reference = match &entry.node {
            Node::Directory(node) => NodeRef::Directory(node.id).encode(),
            Node::File(node) => file_reference(&node.encode(), |node| Ok(NodeId::of(node)))?,
            Node::Symlink(node) => symlink_reference(&node.encode(), |node| Ok(NodeId::of(node)))?,
        };
        let child = Child::Stored { reference: reference.into(), time: time.encode().into() };
        self.put(path.as_ref(), child)
    }

    /// What is live when it becomes part of this tree is kept for it. What a collection has condemned before
    /// may be gone by the time the tree is committed.
    fn check_live(&self, path: &[u8], node: &Node) -> StoreResult<()> {
        let objects: Vec<ObjectId> = match node {
            Node::Directory(node) => {
                node.times.iter().chain([&node.id]).map(|id| (Kind::Node, *id.as_bytes())).collect()
            }
            Node::File(node) => {
                let mut objects = Vec::new();
                references_of(node.encode(), &mut |object| objects.push(object))
                    .map_err(|source| StoreError::Undecodable { what: "a file".to_owned(), source })?;
                objects
            }
            Node::Symlink(_) => Vec::new(),
        };
        let index = &self.store.inner.index;
        let txn = index.read()?;
        for (kind, id) in objects {
            if index.live(&txn, kind, &id)?.is_none() {
                let what = shown(path);
                return Err(StoreError::Refused(format!(
                    "what is to become `{what}` was given up meanwhile"
                )));
            }
        }
        Ok(())
    }

    /// Makes the tree a snapshot. What changed is written; the tree goes on from there.
    pub fn commit(&mut self, new: NewSnapshot) -> Result<Snapshot> {
        // Taken before the commit: once it is there, the snapshot may be removed and collected.
        let guard = Arc::new(self.store.guard()?);
        let parents =
            if new.parents.is_empty() { self.base.into_iter().collect() } else { new.parents.clone() };
        let (snapshot, tree, times) = match &self.staging {
            Some(staging) => {
                // Clones share what was streamed in: one commits after the other.
                let _turn = staging.turn.lock().unwrap_or_else(PoisonError::into_inner);
                self.commit_batch(&staging.batch, true, parents, new)?
            }
            None => {
                let batch = Batch::interactive(self.store.clone(), Arc::clone(&guard));
                self.commit_batch(&batch, false, parents, new)?
            }
        };
        self.staging = None;
        self.guard = guard;
        self.root = Arc::new(Directory::stored(tree, times));
        self.base = Some(snapshot.id);
        Ok(snapshot)
    }

    fn commit_batch(
        &self,
        batch: &Batch,
        keep: bool,
        parents: Vec<SnapshotId>,
        new: NewSnapshot,
    ) -> StoreResult<(Snapshot, NodeId, NodeId)> {
        let (tree, times) = self.write_root(batch)?;
        let contents = batch.finish()?;
        // What was streamed in is nowhere else: if the commit fails, the next one needs it.
        let kept = keep.then(|| contents.clone());
        let done = commit_snapshot(&self.store, contents, tree.into(), times, parents, new);
        if let (Err(_), Some(kept)) = (&done, kept) {
            batch.put_back(kept);
        }
        Ok((done?, tree, times))
    }

    /// The id the tree would have if it were committed now. Nothing is kept.
    pub fn tree_id(&self) -> Result<TreeId> {
        let batch = Batch::interactive(self.store.clone(), Arc::clone(&self.guard));
        Ok(self.write_root(&batch)?.0.into())
    }

    /// Writes what changed. One call per level: a deep tree needs a deeper stack than callers may have.
    fn write_root(&self, batch: &Batch) -> StoreResult<(NodeId, NodeId)> {
        if self.depth > SHALLOW {
            return crate::pool::run(|| self.write_directory(&self.root, batch));
        }
        self.write_directory(&self.root, batch)
    }

    fn write_directory(&self, directory: &Directory, batch: &Batch) -> StoreResult<(NodeId, NodeId)> {
        if let (true, Some(base)) = (directory.is_clean(), directory.base) {
            return Ok(base);
        }
        let mut edits = Vec::with_capacity(directory.edits.len());
        for (name, child) in &directory.edits {
            let entry = child.as_ref().map(|child| self.write_child(child, batch)).transpose()?;
            edits.push(Edit { name, entry });
        }
        let head = directory
            .head
            .as_ref()
            .map(|(mode, xattrs)| Head::Directory { mode: *mode, xattrs: xattrs.clone() });
        rewrite_directory(&self.store, batch, directory.base, head, directory.modified, &edits)
    }

    /// The encoded reference and time of a child, its content written.
    fn write_child(&self, child: &Child, batch: &Batch) -> StoreResult<(Vec<u8>, Vec<u8>)> {
        let store_node = |node: &[u8]| crate::page::NodeSink::put_node(batch, node);
        Ok(match child {
            Child::Stored { reference, time } => (reference.to_vec(), time.to_vec()),
            Child::Directory(directory) => {
                let (id, times) = self.write_directory(directory, batch)?;
                (NodeRef::Directory(id).encode(), EntryTime::Directory(times).encode())
            }
            Child::Symlink { target, modified } => {
                let node = SymlinkNode { target: target.to_vec() }.encode();
                let time = EntryTime::Modified { time: *modified, link: None };
                (symlink_reference(&node, store_node)?, time.encode())
            }
            Child::File(file) => {
                let extents = content::write_tail(batch, &file.kept, &file.tail)?;
                let node = FileNode { mode: file.mode, xattrs: file.xattrs.clone(), extents }.encode();
                let time = file
                    .modified
                    .map_or(EntryTime::Unknown, |time| EntryTime::Modified { time, link: file.link });
                (file_reference(&node, store_node)?, time.encode())
            }
        })
    }

    fn staging(&mut self) -> StoreResult<Arc<Staging>> {
        if let Some(staging) = &self.staging {
            return Ok(Arc::clone(staging));
        }
        let staging = Arc::new(Staging { batch: self.store.batch()?, turn: Mutex::default() });
        self.staging = Some(Arc::clone(&staging));
        Ok(staging)
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

    fn must_find(&self, path: &[u8]) -> Result<Found<'_>> {
        self.find(path)?.ok_or_else(|| TreeError::NotFound { path: shown(path) })
    }

    fn find(&self, path: &[u8]) -> Result<Option<Found<'_>>> {
        let names = path_names(path).map_err(|_| TreeError::BadPath { path: shown(path) })?;
        let mut directory = &*self.root;
        let mut names = names.into_iter();
        let Some(mut name) = names.next() else { return Ok(Some(Found::Root(directory))) };
        loop {
            match directory.edits.get(name) {
                Some(None) => return Ok(None),
                Some(Some(child)) => match (child, names.next()) {
                    (Child::Stored { reference, time }, Some(next)) => {
                        return match stored_directory(reference, time)?.and_then(|below| below.base) {
                            Some((id, times)) => self.find_stored(id, Some(times), next, names),
                            None => Ok(None),
                        };
                    }
                    (child, None) => return Ok(Some(Found::Virtual(child))),
                    (Child::Directory(below), Some(next)) => {
                        directory = below;
                        name = next;
                    }
                    (_, Some(_)) => return Ok(None),
                },
                None => {
                    let Some((id, times)) = directory.base else { return Ok(None) };
                    return self.find_stored(id, Some(times), name, names);
                }
            }
        }
    }

    /// Follows names below a directory of the store.
    fn find_stored<'a>(
        &self,
        mut id: NodeId,
        mut times: Option<NodeId>,
        mut name: &'a [u8],
        mut names: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Found<'_>>> {
        let wrong = |source| StoreError::Undecodable { what: "an entry".to_owned(), source };
        loop {
            let Some((page, time_page, at)) = self.store.find_entry(id, times, name)? else {
                return Ok(None);
            };
            let Some(next) = names.next() else {
                let entry = self.store.decode_entry(&page, time_page.as_deref(), at)?;
                return Ok(Some(Found::Stored(entry)));
            };
            let NodeRef::Directory(below) = page.node_ref(at).map_err(wrong)? else { return Ok(None) };
            (id, name) = (below, next);
            times = match time_page {
                Some(page) if at < page.len() => match page.time(at).map_err(wrong)? {
                    EntryTime::Directory(times) => Some(times),
                    _ => None,
                },
                _ => None,
            };
        }
    }

    fn stored_entry(&self, reference: &[u8], time: &[u8]) -> StoreResult<Entry> {
        let wrong = |source| StoreError::Undecodable { what: "an entry".to_owned(), source };
        let reference = NodeRef::decode(reference).map_err(wrong)?;
        self.store.entry_of(b"", reference, EntryTime::decode(time).map_err(wrong)?)
    }

    /// What was found, as the store would give it; only for what the store has.
    fn entry_found(&self, found: Found<'_>) -> Result<Entry> {
        match found {
            Found::Stored(entry) => Ok(entry),
            Found::Virtual(Child::Stored { reference, time }) => Ok(self.stored_entry(reference, time)?),
            Found::Virtual(Child::Symlink { target, modified }) => Ok(Entry {
                name: Vec::new(),
                node: Node::Symlink(SymlinkNode { target: target.to_vec() }),
                modified: Some(*modified),
                link: None,
            }),
            Found::Root(_) | Found::Virtual(Child::Directory(_)) => {
                Err(TreeError::IsADirectory { path: String::new() })
            }
            Found::Virtual(Child::File(_)) => Err(TreeError::NotADirectory { path: String::new() }),
        }
    }

    fn kind_of(&self, child: &Child) -> StoreResult<NodeKind> {
        Ok(match child {
            Child::Directory(_) => NodeKind::Directory,
            Child::File(_) => NodeKind::File,
            Child::Symlink { .. } => NodeKind::Symlink,
            Child::Stored { reference, .. } => NodeRef::decode(reference)
                .map_err(|source| StoreError::Undecodable { what: "an entry".to_owned(), source })?
                .kind(),
        })
    }

    fn stat_found(&self, found: Found<'_>) -> Result<Stat> {
        let directory = |directory: &Directory| -> Result<Stat> {
            let stored = match directory.base {
                Some((id, times)) => Some(self.store.directory(id, Some(times))?),
                None => None,
            };
            let modified = directory.modified.or(stored.as_ref().and_then(|(_, modified)| *modified));
            let (mode, xattrs) = match (&directory.head, stored) {
                (Some(head), _) => head.clone(),
                (None, Some((node, _))) => (node.mode, node.xattrs),
                (None, None) => (NEW_DIRECTORY, Xattrs::new()),
            };
            Ok(Stat { kind: NodeKind::Directory, mode, size: 0, modified, link: None, xattrs })
        };
        match found {
            Found::Root(root) => directory(root),
            Found::Virtual(Child::Directory(below)) => directory(below),
            Found::Virtual(Child::File(file)) => Ok(Stat {
                kind: NodeKind::File,
                mode: file.mode,
                size: file.size(),
                modified: file.modified,
                link: file.link,
                xattrs: file.xattrs.clone(),
            }),
            found => {
                let entry = self.entry_found(found)?;
                let size = if entry.node.kind() == NodeKind::Directory { 0 } else { entry.node.size() };
                let xattrs = match &entry.node {
                    Node::File(node) => node.xattrs.clone(),
                    Node::Directory(node) => node.xattrs.clone(),
                    Node::Symlink(_) => Xattrs::new(),
                };
                Ok(Stat {
                    kind: entry.node.kind(),
                    mode: entry.node.mode(),
                    size,
                    modified: entry.modified,
                    link: entry.link,
                    xattrs,
                })
            }
        }
    }
}

/// Writes the snapshot's record and what it needs, in one commit.
pub(crate) fn commit_snapshot(
    store: &Store,
    contents: Contents,
    tree: TreeId,
    times: NodeId,
    parents: Vec<SnapshotId>,
    new: NewSnapshot,
) -> StoreResult<Snapshot> {
    let snapshot = Snapshot {
        id: SnapshotId::generate(),
        tree,
        times,
        parents,
        author: new.author,
        message: new.message,
        time: new.time.unwrap_or_else(Timestamp::now),
        labels: new.labels,
    };
    let mut changes = vec![Change::PutSnapshot(snapshot.clone())];
    for (name, expect) in new.references {
        changes.push(Change::SetReference { name, expect, to: snapshot.id });
    }
    store.inner.commit(contents, changes, new.durability)?;
    Ok(snapshot)
}

type ParentAndName<'p> = (Vec<&'p [u8]>, &'p [u8]);

/// A path's parent names and its own; nothing for the root.
fn split(path: &[u8]) -> Result<Option<ParentAndName<'_>>> {
    let mut names = path_names(path).map_err(|_| TreeError::BadPath { path: shown(path) })?;
    Ok(names.pop().map(|name| (names, name)))
}

fn stored_directory(reference: &[u8], time: &[u8]) -> StoreResult<Option<Directory>> {
    let wrong = |source| StoreError::Undecodable { what: "an entry".to_owned(), source };
    match (NodeRef::decode(reference).map_err(wrong)?, EntryTime::decode(time).map_err(wrong)?) {
        (NodeRef::Directory(id), EntryTime::Directory(times)) => Ok(Some(Directory::stored(id, times))),
        (NodeRef::Directory(_), _) => Err(StoreError::Refused("a directory without times".to_owned())),
        _ => Ok(None),
    }
}

/// How a directory refers to a file node: inline when small.
pub(crate) fn file_reference(
    node: &[u8],
    store: impl FnOnce(&[u8]) -> StoreResult<NodeId>,
) -> StoreResult<Vec<u8>> {
    Ok(if node.len() <= INLINE_MAX {
        NodeRef::InlineFile(node).encode()
    } else {
        NodeRef::File(store(node)?).encode()
    })
}

/// How a directory refers to a symlink node: inline when small.
pub(crate) fn symlink_reference(
    node: &[u8],
    store: impl FnOnce(&[u8]) -> StoreResult<NodeId>,
) -> StoreResult<Vec<u8>> {
    Ok(if node.len() <= INLINE_MAX {
        NodeRef::InlineSymlink(node).encode()
    } else {
        NodeRef::Symlink(store(node)?).encode()
    })
}
