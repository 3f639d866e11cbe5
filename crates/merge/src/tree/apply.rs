//! Writes the merged slots to a virtual tree over our tree.
//!
//! Removals come before additions. A directory that their side added or removed, and in which our side
//! changed nothing, is added or removed with one operation.

use std::collections::HashSet;

use workspace_state::{Attributes, Entry, Node, NodeKind, TreeError, VirtualTree};

use super::attributes::{self, NodeAttributes};
use super::changes::{EntryChange, SideChanges};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::directory_renames;
use super::leaf::{ResultEntries, ResultEntry, ResultLeaf, TreeMerger};
use super::paths::{ancestors, below, parent};
use super::result::Result;

pub(super) fn apply(
    merger: &mut TreeMerger<'_>,
    mut result: ResultEntries,
    ours: &SideChanges<'_>,
    theirs: &SideChanges<'_>,
) -> Result<VirtualTree> {
    let mut builder = TreeBuilder { tree: VirtualTree::over(merger.ours)?, known: HashSet::new(), theirs };
    let removed = removed_whole(&result, ours, theirs);
    result.retain(|_, placed| placed.is_different());
    for path in removed {
        drop_below(&mut result, &path);
        builder.tree.remove(&path)?;
    }
    let whole = added_whole(&result, ours, theirs);
    for path in &whole {
        drop_below(&mut result, path);
    }
    for (path, _) in result.iter().filter(|(_, placed)| placed.leaf.is_none()) {
        builder.tree.remove(path)?;
    }
    for from in theirs.moved.keys() {
        builder.tree.remove(from)?;
    }
    builder.remove_empty(&result)?;
    for path in &whole {
        if let Some(entry) = theirs.directories.get(path).and_then(|change| change.new.as_ref()) {
            builder.graft(path, entry)?;
        }
    }
    let wholes: HashSet<&[u8]> = whole.iter().map(Vec::as_slice).collect();
    let is_in_whole = |path: &[u8]| ancestors(path).any(|ancestor| wholes.contains(ancestor));
    for moved in theirs.moved.values().filter(|moved| !is_in_whole(&moved.to)) {
        builder.graft(&moved.to, &moved.new)?;
    }
    for (path, placed) in result {
        if let Some(leaf) = placed.leaf {
            if placed.existing.is_none() {
                builder.parents(&path)?;
            }
            builder.leaf(&path, leaf)?;
        }
    }
    for (path, change) in theirs.directories.iter().filter(|(path, _)| !is_in_whole(path)) {
        builder.directory(merger, path, change, ours.directories.get(path))?;
    }
    builder.renamed_directories(merger, ours, theirs)?;
    builder.tree.graft_subtrees(theirs.tree, &theirs.one_sided)?;
    Ok(builder.tree)
}

impl ResultEntry {
    /// Returns true if the entry differs from our entry.
    fn is_different(&self) -> bool {
        match (&self.leaf, &self.existing) {
            (Some(ResultLeaf::Unchanged(entry)), Some(existing)) => entry.node != existing.node,
            (None, None) => false,
            _ => true,
        }
    }
}

/// Drops all entries below a path.
fn drop_below(result: &mut ResultEntries, path: &[u8]) {
    let paths: Vec<Vec<u8>> = below(result, path).map(|(path, _)| path.clone()).collect();
    for path in paths {
        result.remove(&path);
    }
}

/// Returns the outermost directories that their side removed and that have no entries in the result.
fn removed_whole(result: &ResultEntries, ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Vec<Vec<u8>> {
    let is_gone = |path: &[u8]| {
        !ours.has_changes_at(path)
            && below(result, path).all(|(_, placed)| placed.leaf.is_none())
            && !theirs.moves_into(path)
            && below(&theirs.moved, path).next().is_none()
    };
    let removed = theirs.directories.iter().filter(|(_, change)| change.new.is_none());
    outermost(removed.map(|(path, _)| path).filter(|path| is_gone(path)))
}

/// Returns the outermost directories that their side added and that are unchanged in the result.
fn added_whole(result: &ResultEntries, ours: &SideChanges<'_>, theirs: &SideChanges<'_>) -> Vec<Vec<u8>> {
    let is_whole = |path: &[u8]| {
        let is_as_theirs = |(path, change): (&Vec<u8>, &EntryChange)| match &change.new {
            Some(entry) => result.get(path).is_some_and(|placed| placed.is_entry(entry)),
            None => true,
        };
        let count = below(&theirs.leaves, path).filter(|(_, change)| change.new.is_some()).count();
        !ours.has_changes_at(path)
            && below(&theirs.leaves, path).all(is_as_theirs)
            && below(result, path).filter(|(_, placed)| placed.leaf.is_some()).count() == count
    };
    let added = theirs.directories.keys().filter(|path| theirs.has_added(path));
    outermost(added.filter(|path| is_whole(path)))
}

impl ResultEntry {
    /// Returns true if the result has an entry of one of the trees unchanged.
    fn is_entry(&self, entry: &Entry) -> bool {
        matches!(&self.leaf, Some(ResultLeaf::Unchanged(leaf)) if leaf.node == entry.node)
    }
}

/// Filters sorted paths to those that are not below another one.
fn outermost<'p>(paths: impl Iterator<Item = &'p Vec<u8>>) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    for path in paths {
        if !ancestors(path).any(|ancestor| seen.contains(ancestor)) {
            seen.insert(path.clone());
            found.push(path.clone());
        }
    }
    found
}

/// Merged tree under construction.
struct TreeBuilder<'a> {
    tree: VirtualTree,
    /// Directories that are known to exist.
    known: HashSet<Vec<u8>>,
    theirs: &'a SideChanges<'a>,
}

impl TreeBuilder<'_> {
    /// Removes directories that their side removed, if they are empty.
    fn remove_empty(&mut self, result: &ResultEntries) -> Result<()> {
        let removed = self.theirs.directories.iter().filter(|(_, change)| change.new.is_none());
        for (path, _) in removed.rev() {
            let is_needed = below(result, path).any(|(_, placed)| placed.leaf.is_some());
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
    fn parents(&mut self, path: &[u8]) -> Result<()> {
        let Some(directory) = parent(path) else { return Ok(()) };
        if self.known.contains(directory) {
            return Ok(());
        }
        self.parents(directory)?;
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
        self.known.insert(directory.to_vec());
        Ok(())
    }

    fn graft(&mut self, path: &[u8], entry: &Entry) -> Result<()> {
        self.parents(path)?;
        Ok(self.tree.graft(path, entry)?)
    }

    fn leaf(&mut self, path: &[u8], leaf: ResultLeaf) -> Result<()> {
        match leaf {
            ResultLeaf::Unchanged(entry) => self.tree.graft(path, &entry)?,
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
    fn directory(
        &mut self,
        merger: &mut TreeMerger<'_>,
        path: &[u8],
        change: &EntryChange,
        by_ours: Option<&EntryChange>,
    ) -> Result<()> {
        let Some(Node::Directory(theirs)) = change.new.as_ref().map(|entry| &entry.node) else {
            return Ok(());
        };
        if !path.is_empty() && !self.tree.exists(path)? {
            // Its content was moved to another directory, or is held for a review.
            if change.old.is_some() || theirs.entries > 0 {
                return Ok(());
            }
            self.parents(path)?;
            let (mode, xattrs) = (theirs.mode, theirs.xattrs.clone());
            return Ok(self
                .tree
                .put_directory(path, Attributes { mode, xattrs, ..Attributes::default() })?);
        }
        let (Some(base), Some(new)) = (&change.old, &change.new) else { return Ok(()) };
        let ours = by_ours.and_then(|change| change.new.as_ref()).unwrap_or(base);
        self.attributes(merger, path, [base, ours, new].map(|entry| TreeVersion::new(path, entry.clone())))
    }

    /// Merges the attributes of directories that one side renamed and the other changed.
    fn renamed_directories(
        &mut self,
        merger: &mut TreeMerger<'_>,
        ours: &SideChanges<'_>,
        theirs: &SideChanges<'_>,
    ) -> Result<()> {
        for (by, other) in [(ours, theirs), (theirs, ours)] {
            for (from, to) in directory_renames::changed_and_renamed(by, other) {
                let entries = [by.base.entry(&from)?, by.tree.entry(&to)?, other.tree.entry(&from)?];
                let [Some(base), Some(renamed), Some(changed)] = entries else { continue };
                let base = TreeVersion::new(&from, base);
                let (renamed, changed) = (TreeVersion::new(&to, renamed), TreeVersion::new(&from, changed));
                let is_ours = std::ptr::eq(by, ours);
                let (ours, theirs) = if is_ours { (renamed, changed) } else { (changed, renamed) };
                if self.is_directory(&to)? {
                    self.attributes(merger, &to, [base, ours, theirs])?;
                }
            }
        }
        Ok(())
    }

    /// Sets the merged attributes of an existing directory.
    fn attributes(
        &mut self,
        merger: &mut TreeMerger<'_>,
        path: &[u8],
        [base, ours, theirs]: [TreeVersion; 3],
    ) -> Result<()> {
        let Node::Directory(old) = &base.entry.node else { return Ok(()) };
        let Node::Directory(new) = &theirs.entry.node else { return Ok(()) };
        let here = match &ours.entry.node {
            Node::Directory(node) => node,
            Node::File(_) | Node::Symlink(_) => old,
        };
        let merged = attributes::merge(
            Some(NodeAttributes::of(old)),
            NodeAttributes::of(here),
            NodeAttributes::of(new),
        );
        let (mode, xattrs) = (merged.mode, merged.xattrs);
        if merged.modes_clash || merged.xattrs_clash {
            let class = if merged.modes_clash { ConflictClass::Mode } else { ConflictClass::Attributes };
            let (base, ours, theirs) = (Some(base), Some(ours), Some(theirs));
            merger.report(TreeConflict { base, ours, theirs, ..TreeConflict::new(class, path) });
        }
        match self.tree.put_directory(path, Attributes { mode, xattrs, ..Attributes::default() }) {
            // A leaf has this path: that conflict is already reported.
            Err(TreeError::NotADirectory { .. }) => Ok(()),
            done => Ok(done?),
        }
    }
}
