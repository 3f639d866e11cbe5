//! Writes the merged entries to a virtual tree: a mutable tree in memory that starts as our tree.
//!
//! Removals come before additions. A directory that their side added or removed, and in which our side
//! changed nothing, is added or removed with one operation. Entries of their tree are grafted: a graft adds an entry
//! with everything below it, without reading its content.

use std::collections::HashSet;

use workspace_state::{Attributes, Entry, Node, NodeKind, TreeError, VirtualTree};

use super::attributes::{self, NodeAttributes};
use super::changes::{EntryChange, SideChanges};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::directory_renames;
use super::leaf::{ResultEntries, ResultEntry, ResultLeaf, TreeMerger};
use super::paths::{ancestors, below, parent};
use super::result::Result;

/// Returns our tree with the merged files and symlinks, and with the directories that their side changed.
pub(super) fn apply(
    merger: &mut TreeMerger<'_>,
    mut result: ResultEntries,
    ours: &SideChanges<'_>,
    theirs: &SideChanges<'_>,
) -> Result<VirtualTree> {
    let mut builder =
        TreeBuilder { tree: VirtualTree::over(merger.ours)?, known_directories: HashSet::new(), theirs };
    let removed = removed_whole(&result, ours, theirs);
    result.retain(|_, result_entry| result_entry.is_different());
    for path in removed {
        drop_below(&mut result, &path);
        builder.tree.remove(&path)?;
    }
    let added = added_whole(&result, ours, theirs);
    for path in &added {
        drop_below(&mut result, path);
    }
    for (path, _) in result.iter().filter(|(_, result_entry)| result_entry.leaf.is_none()) {
        builder.tree.remove(path)?;
    }
    for from in theirs.directory_moves.keys() {
        builder.tree.remove(from)?;
    }
    builder.remove_empty(&result)?;
    for path in &added {
        if let Some(entry) = theirs.directories.get(path).and_then(|change| change.new.as_ref()) {
            builder.graft(path, entry)?;
        }
    }
    let added_set: HashSet<&[u8]> = added.iter().map(Vec::as_slice).collect();
    let is_in_added = |path: &[u8]| ancestors(path).any(|ancestor| added_set.contains(ancestor));
    for moved in theirs.directory_moves.values().filter(|moved| !is_in_added(&moved.to)) {
        builder.graft(&moved.to, &moved.new)?;
    }
    for (path, result_entry) in result {
        if let Some(leaf) = result_entry.leaf {
            if result_entry.existing.is_none() {
                builder.create_parents(&path)?;
            }
            builder.put_leaf(&path, leaf)?;
        }
    }
    for (path, change) in theirs.directories.iter().filter(|(path, _)| !is_in_added(path)) {
        builder.merge_directory(merger, path, change, ours.directories.get(path))?;
    }
    builder.merge_renamed_directories(merger, ours, theirs)?;
    // Takes over the directories that only their side changed, if they were not read.
    builder.tree.graft_subtrees(theirs.tree, &theirs.one_sided)?;
    Ok(builder.tree)
}

impl ResultEntry {
    /// Returns true if the result differs from our tree at this path.
    fn is_different(&self) -> bool {
        match (&self.leaf, &self.existing) {
            (Some(ResultLeaf::Unchanged(entry)), Some(existing)) => entry.node != existing.node,
            (None, None) => false,
            _ => true,
        }
    }
}

/// Drops the results below a path. An operation on the whole directory replaces them.
fn drop_below(result: &mut ResultEntries, path: &[u8]) {
    let paths: Vec<Vec<u8>> = below(result, path).map(|(path, _)| path.clone()).collect();
    for path in paths {
        result.remove(&path);
    }
}

/// Returns the outermost directories that can be removed as a whole: their side removed them and moved no directory
/// into or out of them, our side changed nothing in them, and the result has no entries in them.
fn removed_whole(result: &ResultEntries, ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Vec<Vec<u8>> {
    let is_removable = |path: &[u8]| {
        !ours.has_changes_at(path)
            && below(result, path).all(|(_, result_entry)| result_entry.leaf.is_none())
            && !theirs.moves_into(path)
            && below(&theirs.directory_moves, path).next().is_none()
    };
    let removed = theirs.directories.iter().filter(|(_, change)| change.new.is_none());
    outermost(removed.map(|(path, _)| path).filter(|path| is_removable(path)))
}

/// Returns the outermost directories that can be added as a whole: their side added them, our side changed nothing in
/// them, and the result has exactly their entries.
fn added_whole(result: &ResultEntries, ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Vec<Vec<u8>> {
    let is_whole = |path: &[u8]| {
        let is_as_theirs = |(path, change): (&Vec<u8>, &EntryChange)| match &change.new {
            Some(entry) => result.get(path).is_some_and(|result_entry| result_entry.is_entry(entry)),
            None => true,
        };
        let count = below(&theirs.leaves, path).filter(|(_, change)| change.new.is_some()).count();
        !ours.has_changes_at(path)
            && below(&theirs.leaves, path).all(is_as_theirs)
            && below(result, path).filter(|(_, result_entry)| result_entry.leaf.is_some()).count() == count
    };
    let added = theirs.directories.keys().filter(|path| theirs.has_added(path));
    outermost(added.filter(|path| is_whole(path)))
}

impl ResultEntry {
    /// Returns true if the result has `entry` at this path, unchanged.
    fn is_entry(&self, entry: &Entry) -> bool {
        matches!(&self.leaf, Some(ResultLeaf::Unchanged(leaf)) if leaf.node == entry.node)
    }
}

/// Returns those of the sorted paths that are not below another one of them.
fn outermost<'p>(paths: impl Iterator<Item = &'p Vec<u8>>) -> Vec<Vec<u8>> {
    let mut outermost: Vec<Vec<u8>> = Vec::new();
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    for path in paths {
        if !ancestors(path).any(|ancestor| seen.contains(ancestor)) {
            seen.insert(path.clone());
            outermost.push(path.clone());
        }
    }
    outermost
}

/// Merged tree under construction.
struct TreeBuilder<'a> {
    tree: VirtualTree,
    /// Directories that are known to exist in `tree`.
    known_directories: HashSet<Vec<u8>>,
    /// Changes of their side.
    theirs: &'a SideChanges<'a>,
}

impl TreeBuilder<'_> {
    /// Removes the directories that their side removed, if they are empty and the result has no entries in them.
    fn remove_empty(&mut self, result: &ResultEntries) -> Result<()> {
        let removed = self.theirs.directories.iter().filter(|(_, change)| change.new.is_none());
        for (path, _) in removed.rev() {
            let is_needed = below(result, path).any(|(_, result_entry)| result_entry.leaf.is_some());
            if !is_needed && self.is_directory(path)? && self.tree.list(path)?.is_empty() {
                self.tree.remove(path)?;
            }
        }
        Ok(())
    }

    fn is_directory(&self, path: &[u8]) -> Result<bool> {
        Ok(self.tree.exists(path)? && self.tree.stat(path)?.kind == NodeKind::Directory)
    }

    /// Creates the missing parent directories of a path, with the attributes in their tree.
    fn create_parents(&mut self, path: &[u8]) -> Result<()> {
        let Some(directory) = parent(path) else { return Ok(()) };
        if self.known_directories.contains(directory) {
            return Ok(());
        }
        self.create_parents(directory)?;
        if !self.tree.exists(directory)? {
            match self.theirs.tree.entry(directory)?.map(|entry| entry.node) {
                Some(Node::Directory(node)) => {
                    let attributes =
                        Attributes { mode: node.mode, xattrs: node.xattrs, ..Attributes::default() };
                    self.tree.put_directory(directory, attributes)?;
                }
                _ => self.tree.mkdir(directory)?,
            }
        }
        self.known_directories.insert(directory.to_vec());
        Ok(())
    }

    /// Adds an entry of their tree with everything below it, and the missing parent directories of the path.
    fn graft(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        self.create_parents(path)?;
        // A directory that follows the rename of its parent by our side has another path in their tree. `graft` takes
        // an empty path as unknown.
        let theirs = self.theirs.tree.entry(path)?;
        let is_at_path = theirs.is_some_and(|theirs| theirs.node == entry.node);
        let path_in_theirs = if is_at_path { path } else { &[] };
        Ok(self.tree.graft(path, entry, path_in_theirs)?)
    }

    /// Writes a file or symlink of the result.
    fn put_leaf(&mut self, path: &[u8], leaf: ResultLeaf) -> Result<()> {
        match leaf {
            ResultLeaf::Unchanged(entry) => {
                // The last argument, the path in the other tree, matters only for directories.
                self.tree.graft(path, &entry, path)?;
            }
            ResultLeaf::NewAttributes(extents, attributes) => {
                self.tree.put_extents(path, &extents, attributes)?;
            }
            ResultLeaf::NewContent(content, attributes) => {
                self.tree.put_content(path, content, attributes)?;
            }
        }
        Ok(())
    }

    /// Creates a directory that their side added, or merges the attributes of one that their side changed.
    fn merge_directory(
        &mut self,
        merger: &mut TreeMerger<'_>,
        path: &[u8],
        change: &EntryChange,
        our_change: Option<&EntryChange>,
    ) -> Result<()> {
        let Some(Node::Directory(theirs)) = change.new.as_ref().map(|entry| &entry.node) else {
            return Ok(());
        };
        if !path.is_empty() && !self.tree.exists(path)? {
            // The entries of the directory were moved to another directory, or are held for a review (a decision by a
            // person): then the directory is not created.
            if change.old.is_some() || theirs.entries > 0 {
                return Ok(());
            }
            self.create_parents(path)?;
            let (mode, xattrs) = (theirs.mode, theirs.xattrs.clone());
            return Ok(self
                .tree
                .put_directory(path, Attributes { mode, xattrs, ..Attributes::default() })?);
        }
        let (Some(base), Some(new)) = (&change.old, &change.new) else { return Ok(()) };
        let ours = our_change.and_then(|change| change.new.as_ref()).unwrap_or(base);
        self.merge_attributes(
            merger,
            path,
            [base, ours, new].map(|entry| TreeVersion::new(path, entry.clone())),
        )
    }

    /// Merges the attributes of directories that one side renamed and whose attributes the other side changed.
    fn merge_renamed_directories(
        &mut self,
        merger: &mut TreeMerger<'_>,
        ours: &SideChanges<'_>,
        theirs: &SideChanges<'_>,
    ) -> Result<()> {
        for (renaming, other) in [(ours, theirs), (theirs, ours)] {
            for (from, to) in directory_renames::changed_and_renamed(renaming, other) {
                let entries =
                    [renaming.base.entry(&from)?, renaming.tree.entry(&to)?, other.tree.entry(&from)?];
                let [Some(base), Some(renamed), Some(changed)] = entries else { continue };
                let base = TreeVersion::new(&from, base);
                let (renamed, changed) = (TreeVersion::new(&to, renamed), TreeVersion::new(&from, changed));
                let is_ours = std::ptr::eq(renaming, ours);
                let (ours, theirs) = if is_ours { (renamed, changed) } else { (changed, renamed) };
                if self.is_directory(&to)? {
                    self.merge_attributes(merger, &to, [base, ours, theirs])?;
                }
            }
        }
        Ok(())
    }

    /// Sets the merged attributes of an existing directory.
    fn merge_attributes(
        &mut self,
        merger: &mut TreeMerger<'_>,
        path: &[u8],
        [base, ours, theirs]: [TreeVersion; 3],
    ) -> Result<()> {
        let Node::Directory(base_node) = &base.entry.node else { return Ok(()) };
        let Node::Directory(their_node) = &theirs.entry.node else { return Ok(()) };
        let our_node = match &ours.entry.node {
            Node::Directory(node) => node,
            Node::File(_) | Node::Symlink(_) => base_node,
        };
        let merged = attributes::merge(
            Some(NodeAttributes::of_directory(base_node)),
            NodeAttributes::of_directory(our_node),
            NodeAttributes::of_directory(their_node),
        );
        let (mode, xattrs) = (merged.mode, merged.xattrs);
        for (class, clash) in
            [(ConflictClass::Mode, merged.modes_clash), (ConflictClass::Attributes, merged.xattrs_clash)]
        {
            if clash {
                let [base, ours, theirs] = [&base, &ours, &theirs].map(|version| Some(version.clone()));
                merger.report(TreeConflict { base, ours, theirs, ..TreeConflict::new(class, path) });
            }
        }
        match self.tree.put_directory(path, Attributes { mode, xattrs, ..Attributes::default() }) {
            // A file or symlink has this path. That conflict is already reported.
            Err(TreeError::NotADirectory { .. }) => Ok(()),
            result => Ok(result?),
        }
    }
}
