//! Views: the part of a tree that an agent may read, as a tree of its own.
//!
//! - A directory is shown if something in it is shown, or if the rules show it and everything that could be in
//!   it. Where entries may be hidden, an empty directory is not shown: it would look like one whose entries are all
//!   hidden.
//! - A directory in which entries may be hidden has the time of its newest shown entry, because its own time
//!   changes with the hidden ones. A directory that is hidden itself, but shown because of the entries in it (a
//!   *passage*), has mode 0755 and no extended attributes.
//! - Hard links are separate files. Their link labels (equal for all hard links to one file) are removed, because they
//!   would reveal that a file has hidden names.
//! - A directory that the rules show with everything in it is reused without a walk through it. The views of other
//!   directories are kept in a [`ViewCache`] once they are committed. So the view of a changed tree costs as much as
//!   the directories on the paths of the changes.

mod cache;
mod links;

use std::sync::Arc;

use workspace_state::{
    Attributes, DirectoryNode, Entry, NewSnapshot, Node, Snapshot, Store, StoreError, Timestamp, Tree,
    TreeError, TreeId, VirtualTree, WalkUsage, Xattrs,
};

use crate::paths::{child, list_part};
use crate::policy::{AgentPolicy, ReadRules, State};

pub use cache::ViewCache;
use cache::{CacheKey, CachedView};

/// Mode of a directory that is shown only because of the entries in it (a passage).
pub(crate) const PASSAGE_MODE: u16 = 0o755;

/// Error of [`view`].
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The view could not be written.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

type Result<T, E = ViewError> = std::result::Result<T, E>;

/// The part of a tree that an agent may read. Not committed yet.
pub struct View {
    store: Store,
    tree: VirtualTree,
    /// Directories that were filtered: path in the source, and key under which the commit adds the result to the cache.
    filtered: Vec<(Vec<u8>, CacheKey)>,
}

impl View {
    /// Returns the visible tree.
    pub fn tree(&self) -> &VirtualTree {
        &self.tree
    }

    /// Returns the id of the visible tree.
    pub fn tree_id(&self) -> Result<TreeId> {
        Ok(self.tree.tree_id()?)
    }

    /// Returns the visible tree for reading, without a commit.
    pub fn preview(&self) -> Result<Tree> {
        Ok(self.tree.preview()?)
    }

    /// Commits the view and adds its directories to `cache`. The parent of the new snapshot should be the last snapshot
    /// of the same view: layers (read-only directories under workspaces) of the new one can then be derived from those
    /// of the parent.
    pub fn commit(mut self, new: NewSnapshot, cache: &ViewCache) -> Result<(Snapshot, Tree)> {
        let snapshot = self.tree.commit(new)?;
        let tree = Tree::of_snapshot(&self.store, &snapshot)?;
        for (path, key) in &self.filtered {
            match tree.entry(path)? {
                Some(Entry { node: Node::Directory(node), modified, .. }) => {
                    cache.insert(*key, node, modified);
                }
                _ => cache.insert_hidden(*key),
            }
        }
        Ok((snapshot, tree))
    }
}

/// Returns the part of a tree that an agent may read. The result is not committed.
pub fn view(tree: &Tree, policy: &AgentPolicy, cache: &ViewCache) -> Result<View> {
    let rules = policy.read_rules();
    let unchanged = |tree: &Tree| -> Result<View> {
        let (store, tree) = (tree.store().clone(), VirtualTree::over(tree)?);
        Ok(View { store, tree, filtered: Vec::new() })
    };
    if rules.allow_everything() {
        return unchanged(tree);
    }
    let root = match tree.root().node {
        Node::Directory(root) => root,
        Node::File(_) | Node::Symlink(_) => return Err(no_directory().into()),
    };
    let key = CacheKey::new(&root, rules.matcher().fingerprint(&rules.start()));
    if let Some(CachedView::Shown { node, .. }) = cache.get(&key) {
        // The cached view may have been removed from the store meanwhile; then it is built again.
        if let Ok(known) = Tree::open(tree.store(), node.id.into(), node.times) {
            return unchanged(&known);
        }
    }
    let usage = WalkUsage::new(tree.store().walk_limits());
    let result = VirtualTree::over(tree)?;
    let mut walk = Walk { source: tree, rules, cache, usage, result, path: Vec::new(), filtered: Vec::new() };
    walk.run(root)?;
    Ok(View { store: tree.store().clone(), tree: walk.result, filtered: walk.filtered })
}

fn no_directory() -> StoreError {
    StoreError::Refused("the root of a tree is not a directory".to_owned())
}

/// Treatment of the entries of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zone {
    /// Entries may be hidden.
    Filtered,
    /// Everything is shown; link labels are removed.
    Whole,
}

/// Directory that is being filtered.
struct Frame {
    /// Length of the path of the parent directory.
    parent_path_len: usize,
    node: DirectoryNode,
    /// Modification time in the source.
    modified: Option<Timestamp>,
    /// State of the read rules at the directory: true means readable.
    state: Arc<State<bool>>,
    zone: Zone,
    /// Index in the directory of the next entry to read.
    position: u64,
    /// Entries that were read, and are not filtered yet.
    entries: std::vec::IntoIter<Entry>,
    /// Number of shown entries so far.
    shown: u64,
    /// Time of the newest shown entry so far; `None` if no time is known.
    newest: Option<Timestamp>,
}

/// Walk through a tree that removes hidden entries from a copy of it. Open directories are on a stack in the heap,
/// because recursion into a deep tree could overflow the stack of the thread.
struct Walk<'a> {
    source: &'a Tree,
    rules: &'a ReadRules,
    cache: &'a ViewCache,
    /// Entries and metadata read so far, which are limited.
    usage: WalkUsage,
    /// Copy of `source`, from which hidden entries are removed.
    result: VirtualTree,
    /// Path of the directory whose entries are being filtered.
    path: Vec<u8>,
    /// See [`View::filtered`].
    filtered: Vec<(Vec<u8>, CacheKey)>,
}

impl Walk<'_> {
    fn run(&mut self, root: DirectoryNode) -> Result<()> {
        let modified = self.source.root().modified;
        let mut stack = vec![Frame::new(0, root, modified, self.rules.start(), Zone::Filtered)];
        while let Some(frame) = stack.last_mut() {
            match frame.next(self.source)? {
                Some(entry) => {
                    let subdirectory = self.entry(frame, entry)?;
                    stack.extend(subdirectory);
                }
                None => {
                    let done = stack.pop();
                    if let Some(done) = done {
                        self.finish(&done, stack.last_mut())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Shows or hides an entry. Returns a frame for a directory whose own entries must be filtered first: they decide
    /// if the directory is shown.
    fn entry(&mut self, parent: &mut Frame, entry: Entry) -> Result<Option<Frame>> {
        let matcher = self.rules.matcher();
        let Node::Directory(node) = &entry.node else {
            if parent.zone == Zone::Filtered && !matcher.value_of(&parent.state, &entry.name) {
                return self.hide(&entry.name).map(|()| None);
            }
            self.show_leaf(parent, entry)?;
            return Ok(None);
        };
        if parent.zone == Zone::Whole {
            return self.show_whole(parent, &entry, node, &Arc::clone(&parent.state));
        }
        let state = matcher.descend(&parent.state, &entry.name);
        if state.value_of_all_below() == Some(false) {
            // Even if the rules show the directory itself: an empty directory is shown only where nothing can be
            // hidden.
            self.hide(&entry.name).map(|()| None)
        } else if state.is_everywhere(true) {
            self.show_whole(parent, &entry, node, &state)
        } else {
            self.show_part(parent, &entry, node, state, Zone::Filtered)
        }
    }

    /// Shows a file or symlink, without its link label.
    fn show_leaf(&mut self, parent: &mut Frame, entry: Entry) -> Result<()> {
        parent.show(entry.modified);
        if entry.link_label.is_some() {
            let path = child(&self.path, &entry.name);
            let path_in_source = &path;
            self.result.graft(&path, &Entry { link_label: None, ..entry }, path_in_source)?;
        }
        Ok(())
    }

    /// Shows a directory with everything in it. Returns a frame only if there are hard links below the directory, whose
    /// link labels must be removed.
    fn show_whole(
        &mut self,
        parent: &mut Frame,
        entry: &Entry,
        node: &DirectoryNode,
        state: &Arc<State<bool>>,
    ) -> Result<Option<Frame>> {
        if links::has_links(self.source, node, self.cache)? {
            return self.show_part(parent, entry, node, Arc::clone(state), Zone::Whole);
        }
        parent.show(entry.modified);
        Ok(None)
    }

    /// Shows a directory as the cache has it. Returns a frame if the cache does not have it.
    fn show_part(
        &mut self,
        parent: &mut Frame,
        entry: &Entry,
        node: &DirectoryNode,
        state: Arc<State<bool>>,
        zone: Zone,
    ) -> Result<Option<Frame>> {
        let key = CacheKey::new(node, self.rules.matcher().fingerprint(&state));
        match self.cache.get(&key) {
            Some(CachedView::Hidden) => return self.hide(&entry.name).map(|()| None),
            Some(CachedView::Shown { node: shown, modified }) => {
                let path = child(&self.path, &entry.name);
                let shown = Entry { node: Node::Directory(shown), modified, ..entry.clone() };
                // The cached view may have been removed from the store meanwhile; then the directory is filtered again.
                let path_in_view = &path;
                if shown.node == entry.node || self.result.graft(&path, &shown, path_in_view).is_ok() {
                    parent.show(modified);
                    return Ok(None);
                }
            }
            None => {}
        }
        let parent_path_len = self.path.len();
        self.path = child(&self.path, &entry.name);
        Ok(Some(Frame::new(parent_path_len, node.clone(), entry.modified, state, zone)))
    }

    /// Removes an entry of the present directory from the view.
    fn hide(&mut self, name: &[u8]) -> Result<()> {
        Ok(self.result.remove(child(&self.path, name))?)
    }

    /// Completes a directory after its last entry: removes it if nothing in it is shown, or else sets its attributes.
    fn finish(&mut self, done: &Frame, parent: Option<&mut Frame>) -> Result<()> {
        let path = self.path.clone();
        self.path.truncate(done.parent_path_len);
        self.usage.add(path.len()).map_err(StoreError::from)?;
        self.filtered
            .push((path.clone(), CacheKey::new(&done.node, self.rules.matcher().fingerprint(&done.state))));
        if done.zone == Zone::Filtered && done.shown == 0 && parent.is_some() {
            return Ok(self.result.remove(&path)?);
        }
        let (mode, xattrs) = match done.state.value() {
            true => (done.node.mode, done.node.xattrs.clone()),
            false => (PASSAGE_MODE, Xattrs::new()),
        };
        let modified = match done.zone {
            Zone::Whole => done.modified,
            // The time in the source would reveal changes of hidden entries.
            Zone::Filtered => done.newest,
        };
        let modified = Some(modified.unwrap_or(Timestamp(0)));
        self.result.put_directory(&path, Attributes { mode, xattrs, modified, link_label: None })?;
        parent.into_iter().for_each(|parent| parent.show(modified));
        Ok(())
    }
}

impl Frame {
    fn new(
        parent_path_len: usize,
        node: DirectoryNode,
        modified: Option<Timestamp>,
        state: Arc<State<bool>>,
        zone: Zone,
    ) -> Self {
        let (position, shown) = (0, 0);
        let entries = Vec::new().into_iter();
        Self { parent_path_len, node, modified, state, zone, position, entries, shown, newest: None }
    }

    /// Returns the next entry; `None` after the last one.
    fn next(&mut self, tree: &Tree) -> Result<Option<Entry>> {
        if self.entries.len() == 0 {
            self.entries = list_part(tree, &self.node, self.position)?.into_iter();
            self.position += self.entries.len() as u64;
        }
        Ok(self.entries.next())
    }

    /// Records that an entry with this modification time is shown.
    fn show(&mut self, modified: Option<Timestamp>) {
        self.shown += 1;
        self.newest = self.newest.max(modified);
    }
}
