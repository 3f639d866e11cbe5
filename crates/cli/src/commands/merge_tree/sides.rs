//! The sides of a merge.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use workspace_state::{
    DifferenceKind, Durability, Entry, NewSnapshot, Node, Progress, Store, Tree, VirtualTree, diff,
};

use super::super::diff::side::{Side, SideSource};
use crate::error::{CommandError, Result};

pub(super) fn resolve(store: &Store, typed: &OsStr) -> Result<SideSource> {
    SideSource::resolve(store, typed).map_err(|error| {
        if Path::new(typed).is_file() {
            error.hint("it is a file: `workspace merge-file` merges files")
        } else {
            error
        }
    })
}

/// Opens the sides of a merge.
pub(super) struct Sides<'a> {
    pub(super) store: &'a Store,
    /// True if `.workspaceignore` files apply to directories.
    pub(super) ignore: bool,
    pub(super) progress: &'a dyn Progress,
}

impl Sides<'_> {
    /// Opens a side. Fails if some of its entries cannot be read.
    pub(super) fn tree(&self, source: &SideSource) -> Result<Tree> {
        let side = Side::open(self.store, source, self.ignore, self.progress)?;
        if side.lacks_content {
            return Err(CommandError::failed(
                "unreadable entries cannot be merged: they would be treated as removed",
            )
            .hint("make them readable, or exclude them in a `.workspaceignore` file"));
        }
        Ok(side.tree)
    }

    /// Opens a side. Ignored entries of a directory are not removals: they are taken from the base.
    pub(super) fn tree_with_ignored(&self, source: &SideSource, base: &Tree) -> Result<Tree> {
        let tree = self.tree(source)?;
        let SideSource::Directory(directory) = source else { return Ok(tree) };
        let ignored = ignored_entries(directory, &tree, base)?;
        if ignored.is_empty() {
            return Ok(tree);
        }
        let mut completed = VirtualTree::over(&tree)?;
        for (path, entry) in &ignored {
            completed.graft(path, entry, path)?;
        }
        commit_temporarily(self.store, &mut completed)
    }
}

/// Returns entries that the base and the directory have, but not the tree of the directory.
fn ignored_entries(directory: &Path, tree: &Tree, base: &Tree) -> Result<Vec<(Vec<u8>, Entry)>> {
    let mut ignored = Vec::new();
    for difference in diff(base, tree)? {
        let path = match difference.kind {
            DifferenceKind::Removed => difference.path,
            DifferenceKind::Renamed { from } => from,
            _ => continue,
        };
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        // An ignored directory is listed as a whole, and a parent that is a symlink now is not followed.
        let parent_is_directory =
            tree.entry(&path[..slash])?.is_some_and(|parent| matches!(parent.node, Node::Directory(_)));
        if let Some(old) = difference.old
            && parent_is_directory
            && directory.join(OsStr::from_bytes(&path)).symlink_metadata().is_ok()
        {
            ignored.push((path, old));
        }
    }
    Ok(ignored)
}

/// Commits a tree so that it can be merged. Its snapshot is removed when this returns; the open tree keeps
/// its objects from being collected.
pub(super) fn commit_temporarily(store: &Store, tree: &mut VirtualTree) -> Result<Tree> {
    let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
    let snapshot = tree.commit(new)?;
    let committed = Tree::of_snapshot(store, &snapshot);
    store.remove_snapshots(&[snapshot.id])?;
    Ok(committed?)
}
