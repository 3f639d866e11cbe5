//! The inputs of a merge, each a snapshot or a directory: the base, and the sides that changed it since, ours and
//! theirs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use workspace_state::{
    DifferenceKind, Durability, Entry, NewSnapshot, Node, Progress, Store, Tree, VirtualTree, diff,
};

use super::super::diff::side::{Side, SideSource};
use crate::error::{CommandError, Result};

/// Resolves the name of an input. The error for a file names the command that merges files.
pub(in crate::commands) fn resolve(store: &Store, typed: &OsStr) -> Result<SideSource> {
    SideSource::resolve(store, typed).map_err(|error| {
        if Path::new(typed).is_file() {
            error.hint("it is a file: `workspace merge-file` merges files")
        } else {
            error
        }
    })
}

/// Opens the inputs of a merge as trees.
pub(in crate::commands) struct InputOpener<'a> {
    pub(in crate::commands) store: &'a Store,
    /// True if `.workspaceignore` files apply to directories.
    pub(in crate::commands) use_ignore_files: bool,
    pub(in crate::commands) progress: &'a dyn Progress,
}

impl InputOpener<'_> {
    /// Opens the base. Fails if some of its entries cannot be read.
    pub(in crate::commands) fn open(&self, source: &SideSource) -> Result<Tree> {
        let side = Side::open(self.store, source, self.use_ignore_files, self.progress)?;
        if side.has_unreadable_entries {
            return Err(CommandError::failed(
                "unreadable entries cannot be merged: they would be treated as removed",
            )
            .hint("make them readable, or exclude them in a `.workspaceignore` file"));
        }
        Ok(side.tree)
    }

    /// Opens ours or theirs. A directory is read without the entries that it ignores; those of them that the base has
    /// are added as they are in the base, because otherwise they would count as removed.
    pub(in crate::commands) fn open_with_ignored(&self, source: &SideSource, base: &Tree) -> Result<Tree> {
        let tree = self.open(source)?;
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

/// Returns the entries that `tree`, which was read from `directory`, lacks because they are ignored: the base has
/// them, and they still exist in the directory. They are returned as in the base.
fn ignored_entries(directory: &Path, tree: &Tree, base: &Tree) -> Result<Vec<(Vec<u8>, Entry)>> {
    let mut ignored = Vec::new();
    for difference in diff(base, tree)? {
        let path = match difference.kind {
            DifferenceKind::Removed => difference.path,
            DifferenceKind::Renamed { from } => from,
            _ => continue,
        };
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        // Only the topmost ignored directory is returned, and grafted with all that is below it. A parent that is a
        // symlink now is not followed.
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

/// Commits a virtual tree, because only stored trees can be merged, and removes the snapshot at once. The objects stay
/// until the returned tree is dropped: garbage collection spares objects of open trees.
pub(in crate::commands) fn commit_temporarily(store: &Store, tree: &mut VirtualTree) -> Result<Tree> {
    let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
    let snapshot = tree.commit(new)?;
    let committed = Tree::of_snapshot(store, &snapshot);
    store.remove_snapshots(&[snapshot.id])?;
    Ok(committed?)
}
