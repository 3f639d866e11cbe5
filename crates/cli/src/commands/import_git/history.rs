//! Creates snapshots from commits.
//!
//! Parents are imported before their children. The snapshot of a commit is derived from that of its first parent by
//! the difference of their git trees, so the cost is proportional to the changes. A git tree that an earlier commit of
//! this run has is taken from the snapshot of that commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;

use workspace_state::{
    Attributes, Durability, NewSnapshot, SnapshotId, Store, Timestamp, Tree, TreeError, VirtualTree,
    shorten_path,
};

use super::git::{CatFile, CommitParents, git_failed};
use super::objects::{EntryKind, GitEntry, Objects};
use crate::error::{CommandError, Result};
use crate::names;

/// Label of a snapshot with the id of its commit.
const COMMIT_LABEL: &str = "git.commit";
/// Maximum depth of a tree, which is walked recursively.
const DEPTH_MAX: usize = 1024;
/// Maximum length of a symlink target on Linux.
const TARGET_MAX: u64 = 4095;

/// Entry that was not imported: a submodule, an entry named `.git` or of an unknown kind, or a symlink with an invalid
/// target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands) struct SkippedEntry {
    pub(in crate::commands) path: Vec<u8>,
    pub(in crate::commands) reason: &'static str,
}

/// Turns commits into snapshots.
pub(in crate::commands) struct Importer<'s> {
    store: &'s Store,
    objects: Objects,
    /// The snapshots of commits, from this run and earlier ones.
    snapshots: HashMap<String, SnapshotId>,
    /// Location of git trees in the store: snapshot and path.
    trees: HashMap<String, (SnapshotId, Vec<u8>)>,
    /// Git trees that were new or changed in the commit being imported, with their paths; added to `trees` when it has
    /// a snapshot.
    new_trees: Vec<(String, Vec<u8>)>,
    /// Entries that were not imported. Those below a copied git tree are listed only at the path where it was imported
    /// first.
    skipped: BTreeSet<SkippedEntry>,
}

impl<'s> Importer<'s> {
    pub(in crate::commands) fn new(store: &'s Store, cat_file: CatFile) -> Result<Self> {
        let all = store.snapshots()?.into_iter();
        let snapshots =
            all.filter_map(|mut snapshot| Some((snapshot.labels.remove(COMMIT_LABEL)?, snapshot.id)));
        Ok(Self {
            store,
            objects: Objects::new(cat_file),
            snapshots: snapshots.collect(),
            trees: HashMap::new(),
            new_trees: Vec::new(),
            skipped: BTreeSet::new(),
        })
    }

    /// Returns true if a commit has a snapshot.
    pub(in crate::commands) fn has(&self, commit: &str) -> bool {
        self.snapshots.contains_key(commit)
    }

    /// Returns the snapshot of a commit that was imported.
    pub(in crate::commands) fn snapshot(&self, commit: &str) -> Result<SnapshotId> {
        let found = self.snapshots.get(commit).copied();
        found.ok_or_else(|| CommandError::failed(format!("commit {commit} was not imported")))
    }

    pub(in crate::commands) fn into_skipped(self) -> Vec<SkippedEntry> {
        self.skipped.into_iter().collect()
    }

    /// Creates the snapshot of a commit. Fails if one of its parents has none. The caller syncs once, at the end.
    pub(in crate::commands) fn import(&mut self, listed: &CommitParents) -> Result<()> {
        let commit = self.objects.commit(&listed.id)?;
        let parents =
            listed.parents.iter().map(|parent| self.snapshot(parent)).collect::<Result<Vec<SnapshotId>>>()?;
        let (mut tree, before) = self.base(listed)?;
        let mut step =
            CommitImport { importer: self, commit: &listed.id, tree: &mut tree, time: commit.time };
        step.apply(&[], before.as_deref(), &commit.tree, 0)?;
        let snapshot = tree.commit(NewSnapshot {
            parents,
            author: commit.author,
            message: commit.message,
            time: Some(commit.time),
            labels: BTreeMap::from([(COMMIT_LABEL.to_owned(), listed.id.clone())]),
            durability: Durability::Buffered,
            ..NewSnapshot::default()
        })?;
        for (id, path) in self.new_trees.drain(..) {
            self.trees.entry(id).or_insert((snapshot.id, path));
        }
        self.snapshots.insert(listed.id.clone(), snapshot.id);
        Ok(())
    }

    /// Returns the tree to start from and the id of its git tree: those of the first parent. A commit without parents
    /// starts from an empty tree, whose id is `None`.
    fn base(&mut self, listed: &CommitParents) -> Result<(VirtualTree, Option<String>)> {
        match listed.parents.first() {
            Some(parent) => {
                let snapshot = self.snapshot(parent)?;
                Ok((self.store.restore(&snapshot)?, Some(self.objects.commit(parent)?.tree)))
            }
            None => Ok((self.store.empty_tree()?, None)),
        }
    }
}

/// Import of one commit.
struct CommitImport<'a, 's> {
    importer: &'a mut Importer<'s>,
    /// Id of the commit.
    commit: &'a str,
    /// Tree of the snapshot that is being made; at first that of the first parent.
    tree: &'a mut VirtualTree,
    /// Time of the commit, which changed entries get.
    time: Timestamp,
}

impl CommitImport<'_, '_> {
    /// Updates the directory at `path` from the git tree `before` to the git tree `after`.
    fn apply(&mut self, path: &[u8], before: Option<&str>, after: &str, depth: usize) -> Result<()> {
        if before == Some(after) {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            let (path, commit) = (shorten_path(path), self.commit);
            let message =
                format!("`{path}` in commit {commit} is nested too deeply: {DEPTH_MAX} levels are allowed");
            return Err(CommandError::failed(message).hint("the commits before it were imported"));
        }
        let old = match before {
            Some(id) => self.importer.objects.tree(id)?,
            None => [].into(),
        };
        let new = self.importer.objects.tree(after)?;
        let mut remaining: HashMap<&[u8], &GitEntry> =
            old.iter().map(|entry| (&entry.name[..], entry)).collect();
        for entry in &*new {
            let former = remaining.remove(&entry.name[..]);
            if former.is_none_or(|former| (former.mode, &former.id) != (entry.mode, &entry.id)) {
                self.put(names::join(path, &entry.name), former, entry, depth)?;
            }
        }
        for entry in remaining.values().filter(|entry| is_imported(entry)) {
            self.remove(&names::join(path, &entry.name))?;
        }
        self.importer.new_trees.push((after.to_owned(), path.to_vec()));
        self.set_directory_attributes(path)
    }

    /// Adds or replaces an entry. `former` is the entry of that name in the first parent.
    fn put(
        &mut self,
        path: Vec<u8>,
        former: Option<&GitEntry>,
        entry: &GitEntry,
        depth: usize,
    ) -> Result<()> {
        let former_kind = former.map(GitEntry::kind);
        let kind = entry.kind();
        if former.is_some_and(is_imported)
            && (former_kind == Some(EntryKind::Tree)) != (kind == EntryKind::Tree)
        {
            self.remove(&path)?;
        }
        match kind {
            EntryKind::Tree => {
                let before =
                    former.filter(|_| former_kind == Some(EntryKind::Tree)).map(|former| former.id.as_str());
                if !self.graft(&path, &entry.id)? {
                    // Leaves an existing directory unchanged.
                    self.tree.mkdir(&path)?;
                    self.apply(&path, before, &entry.id, depth + 1)?;
                }
            }
            EntryKind::File { mode } => self.put_file(&path, &entry.id, mode)?,
            EntryKind::Symlink => self.put_symlink(&path, &entry.id)?,
            EntryKind::Skipped(reason) => {
                if former.is_some_and(is_imported) && former_kind != Some(EntryKind::Tree) {
                    self.remove(&path)?;
                }
                self.importer.skipped.insert(SkippedEntry { path, reason });
            }
        }
        Ok(())
    }

    /// Copies a git tree from a snapshot of this run that has it, with its times, replacing the entry at `path`.
    /// Returns false if none has it.
    fn graft(&mut self, path: &[u8], id: &str) -> Result<bool> {
        let Some((snapshot, source)) = self.importer.trees.get(id) else { return Ok(false) };
        let snapshot = self.importer.store.snapshot(snapshot)?;
        let Some(entry) = Tree::of_snapshot(self.importer.store, &snapshot)?.entry(source)? else {
            return Ok(false);
        };
        // With the path of the source, depths are checked only if the tree moves deeper.
        self.tree.graft(path, &entry, source)?;
        Ok(true)
    }

    fn put_file(&mut self, path: &[u8], id: &str, mode: u16) -> Result<()> {
        let attributes = Attributes { mode, modified: Some(self.time), ..Attributes::default() };
        let tree = &mut *self.tree;
        self.importer.objects.blob(id, |_, content| Ok(tree.put_file(path, content, attributes)?))
    }

    fn put_symlink(&mut self, path: &[u8], id: &str) -> Result<()> {
        let target = self.importer.objects.blob(id, |size, content| read_target(size, content))?;
        match target {
            Some(target) => Ok(self.tree.put_symlink(path, target, Some(self.time))?),
            None => {
                // An entry of the parent commit must not stay.
                self.remove(path)?;
                let reason = "a symlink with an invalid target";
                self.importer.skipped.insert(SkippedEntry { path: path.to_vec(), reason });
                Ok(())
            }
        }
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        match self.tree.remove(path) {
            // A symlink with an invalid target was skipped when its commit was imported.
            Err(TreeError::NotFound { .. }) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Sets the mode of a changed directory to 0755 and its time to that of the commit, so that every import of the
    /// commit has the same result, apart from the times of a tree that was copied from an earlier commit of the run.
    fn set_directory_attributes(&mut self, path: &[u8]) -> Result<()> {
        let attributes = Attributes { mode: 0o755, modified: Some(self.time), ..Attributes::default() };
        Ok(self.tree.put_directory(path, attributes)?)
    }
}

/// Returns true if the entry has a kind that is imported. A symlink with an invalid target is skipped nevertheless.
fn is_imported(entry: &GitEntry) -> bool {
    !matches!(entry.kind(), EntryKind::Skipped(_))
}

/// Reads the target of a symlink; `None` if no symlink can have it.
fn read_target(size: u64, content: &mut dyn Read) -> Result<Option<Vec<u8>>> {
    if size == 0 || size > TARGET_MAX {
        return Ok(None);
    }
    let mut target = Vec::new();
    content.read_to_end(&mut target).map_err(|error| git_failed(&error))?;
    Ok(Some(target).filter(|target| !target.contains(&0)))
}
