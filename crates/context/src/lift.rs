//! Lift: applies a change of a view (the part of a tree that an agent may read) to the full tree.
//!
//! The result is the full tree with the smallest change that gives it the changed view. The view of the result is
//! computed and compared with the changed view before the result is returned. Hidden entries stay as they are.
//!
//! A directory that is gone from the view is removed from the full tree if it has no entries left, and one of these
//! conditions holds:
//!
//! - The rules show everything that could be in the directory. Then the view would show it even if it is empty.
//! - A file or symlink takes its place.
//! - The agent may delete it.
//!
//! Otherwise the directory stays in the full tree, and the view does not show it. If a file or symlink takes the place
//! of a directory that still has hidden entries, the lift fails.

use workspace_state::{
    Attributes, Difference, DifferenceKind, DirectoryNode, Entry, Node, NodeKind, StoreError, Tree,
    TreeError, TreePath, VirtualTree, diff, shorten_path,
};

use crate::paths::walk_below;
use crate::policy::AgentPolicy;
use crate::view::{ViewCache, ViewError, view};

/// Error of [`lift`].
#[derive(Debug, thiserror::Error)]
pub enum LiftError {
    /// An entry that the agent cannot see occupies the path of an addition. Revert the addition, and lift again.
    #[error("`{}` cannot be added there: choose another name", shorten_path(&.path.0))]
    Occupied {
        /// Path that the agent added.
        path: TreePath,
    },
    /// The changed view has a file or symlink that the agent may not see. Changes must be checked before they are
    /// merged, see [`check_changes`](crate::check_changes).
    #[error("`{}` is not in the view of the agent: check the changes before they are merged", shorten_path(&.path.0))]
    NotVisible {
        /// Path in the changed view.
        path: TreePath,
    },
    /// The result would have another view than the changed one. Nothing was written.
    #[error("the changed view cannot be applied to the project")]
    Diverged,
    /// A view could not be built.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The result could not be written.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

type Result<T, E = LiftError> = std::result::Result<T, E>;

/// Applies the differences between `head_view`, the view of `head`, and `merged_view` to `head`. All trees must be
/// committed to the same store.
pub fn lift(
    head: &Tree,
    head_view: &Tree,
    merged_view: &Tree,
    policy: &AgentPolicy,
    cache: &ViewCache,
) -> Result<VirtualTree> {
    if policy.reads_everything() {
        return Ok(VirtualTree::over(merged_view)?);
    }
    // The merged view, filtered again: a merge can leave something that no view has, such as an empty directory, or
    // changed attributes of a directory that is shown only because of entries below it. New nodes of the filtered tree
    // are in memory only, not in the store.
    let normalized_view = view(merged_view, policy, cache)?.preview()?;
    if normalized_view.id() != merged_view.id() {
        check_visible(&diff(merged_view, &normalized_view)?)?;
    }
    let mut lift = Lift { policy, merged_view, tree: VirtualTree::over(head)?, steps: Steps::default() };
    for difference in diff(head_view, &normalized_view)? {
        lift.plan(head_view, &normalized_view, difference)?;
    }
    lift.apply()?;
    let lifted = lift.tree;
    if view(&lifted.preview()?, policy, cache)?.tree_id()? != normalized_view.id() {
        return Err(LiftError::Diverged);
    }
    Ok(lifted)
}

/// Fails if a view lost a file or symlink when it was filtered again, which means that the agent may not see that
/// entry. `differences` are those between the view and the result of the filter.
fn check_visible(differences: &[Difference]) -> Result<()> {
    let is_leaf = |entry: &Entry| entry.node.kind() != NodeKind::Directory;
    match differences.iter().find(|difference| difference.old.as_ref().is_some_and(is_leaf)) {
        Some(hidden) => Err(LiftError::NotVisible { path: TreePath(hidden.path.clone()) }),
        None => Ok(()),
    }
}

/// Changes of the full tree, in the order in which they are applied.
#[derive(Default)]
struct Steps {
    /// Files and symlinks to remove.
    removed_leaves: Vec<Vec<u8>>,
    /// Directories to remove with everything in them. The agent sees all their entries.
    removed_whole: Vec<Vec<u8>>,
    /// Directories that are gone from the view. [`Lift::remove_directories`] removes those that are empty, if the view
    /// would show them empty or the agent may delete them.
    removed_directories: Vec<Vec<u8>>,
    /// Directories that a file or symlink replaces. The lift fails if one has entries left. The access to the
    /// directory does not matter.
    replaced_directories: Vec<Vec<u8>>,
    /// Directories to create, or whose attributes are set.
    directories: Vec<(Vec<u8>, DirectoryNode)>,
    /// Directories to add with everything in them. The agent sees all their entries.
    added_whole: Vec<(Vec<u8>, Entry)>,
    /// Files and symlinks to add. The lift fails if a path has an entry already.
    added_leaves: Vec<(Vec<u8>, Entry)>,
    /// Files and symlinks that replace those at their paths.
    changed_leaves: Vec<(Vec<u8>, Entry)>,
}

struct Lift<'a> {
    policy: &'a AgentPolicy,
    /// View with the merged changes.
    merged_view: &'a Tree,
    /// Full tree, to which the steps are applied.
    tree: VirtualTree,
    /// Planned steps that are not applied yet.
    steps: Steps,
}

impl Lift<'_> {
    /// Plans the steps of a difference between the views.
    fn plan(&mut self, head_view: &Tree, normalized_view: &Tree, difference: Difference) -> Result<()> {
        let Difference { path, kind, old, new } = difference;
        match (kind, old, new) {
            (DifferenceKind::Renamed { from }, Some(old), Some(new)) => {
                self.plan_removal_with_content(head_view, from, &old)?;
                self.plan_addition_with_content(normalized_view, path, new)?;
            }
            (DifferenceKind::TypeChanged, Some(old), Some(new)) => {
                match old.node {
                    Node::Directory(_) => self.steps.replaced_directories.push(path.clone()),
                    Node::File(_) | Node::Symlink(_) => self.steps.removed_leaves.push(path.clone()),
                }
                self.plan_addition(path, new);
            }
            (_, None, Some(new)) => self.plan_addition(path, new),
            (_, Some(old), None) => self.plan_removal(path, &old),
            (_, _, Some(new)) => match new.node {
                Node::Directory(node) => self.steps.directories.push((path, node)),
                Node::File(_) | Node::Symlink(_) => self.steps.changed_leaves.push((path, new)),
            },
            (_, _, None) => {}
        }
        Ok(())
    }

    fn plan_addition(&mut self, path: Vec<u8>, entry: Entry) {
        match entry.node {
            Node::Directory(node) => self.steps.directories.push((path, node)),
            Node::File(_) | Node::Symlink(_) => self.steps.added_leaves.push((path, entry)),
        }
    }

    fn plan_removal(&mut self, path: Vec<u8>, entry: &Entry) {
        match entry.node {
            Node::Directory(_) => self.steps.removed_directories.push(path),
            Node::File(_) | Node::Symlink(_) => self.steps.removed_leaves.push(path),
        }
    }

    /// Plans the addition of an entry, with all entries below it if it is a directory.
    fn plan_addition_with_content(
        &mut self,
        normalized_view: &Tree,
        path: Vec<u8>,
        entry: Entry,
    ) -> Result<()> {
        if let Node::Directory(node) = &entry.node {
            // Taken from `merged_view`, which is in the store: the equal entry of `normalized_view` may be in
            // memory only.
            let committed = self.merged_view.entry(&path)?.filter(|committed| committed.node == entry.node);
            if let (true, Some(committed)) = (self.is_shown_whole(&path), committed) {
                self.steps.added_whole.push((path, committed));
                return Ok(());
            }
            walk_below(normalized_view, &path, node, &mut |path, entry| {
                self.plan_addition(path, entry);
                Ok::<_, LiftError>(())
            })?;
        }
        self.plan_addition(path, entry);
        Ok(())
    }

    /// Plans the removal of an entry, with all entries below it if it is a directory.
    fn plan_removal_with_content(&mut self, head_view: &Tree, path: Vec<u8>, entry: &Entry) -> Result<()> {
        if let Node::Directory(node) = &entry.node {
            if self.is_shown_whole(&path) {
                self.steps.removed_whole.push(path);
                return Ok(());
            }
            walk_below(head_view, &path, node, &mut |path, entry| {
                self.plan_removal(path, &entry);
                Ok::<_, LiftError>(())
            })?;
        }
        self.plan_removal(path, entry);
        Ok(())
    }

    /// Returns true if the rules show a directory and everything that could be in it.
    fn is_shown_whole(&self, path: &[u8]) -> bool {
        self.policy.read_rules().shows_whole(path)
    }

    fn apply(&mut self) -> Result<()> {
        let mut steps = std::mem::take(&mut self.steps);
        for path in steps.removed_leaves.iter().chain(&steps.removed_whole) {
            self.tree.remove(path)?;
        }
        self.remove_directories(&mut steps)?;
        // Parents first.
        steps.directories.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, node) in steps.directories {
            self.put_directory(&path, node)?;
        }
        for (path, entry) in steps.added_whole.into_iter().chain(steps.added_leaves) {
            if self.tree.exists(&path)? {
                return Err(LiftError::Occupied { path: TreePath(path) });
            }
            self.put(&path, entry)?;
        }
        for (path, entry) in steps.changed_leaves {
            self.put(&path, entry)?;
        }
        Ok(())
    }

    /// Removes empty directories that are gone from the view, innermost first. A directory with entries left stays;
    /// fails if a file or symlink replaces it.
    fn remove_directories(&mut self, steps: &mut Steps) -> Result<()> {
        let removed = steps.removed_directories.drain(..).map(|path| (path, false));
        let mut all: Vec<(Vec<u8>, bool)> =
            removed.chain(steps.replaced_directories.drain(..).map(|path| (path, true))).collect();
        all.sort();
        for (path, is_replaced) in all.into_iter().rev() {
            let is_empty = self.tree.list(&path)?.is_empty();
            if is_empty && (is_replaced || self.is_shown_whole(&path) || self.can_delete(&path)) {
                self.tree.remove(&path)?;
            } else if is_replaced {
                return Err(LiftError::Occupied { path: TreePath(path) });
            }
        }
        Ok(())
    }

    fn can_delete(&self, path: &[u8]) -> bool {
        self.policy.access(path).can_delete()
    }

    /// Creates a directory, or sets the attributes of an existing one. If the agent may not read the directory itself,
    /// a new one gets default attributes, and an existing one keeps its own.
    fn put_directory(&mut self, path: &[u8], node: DirectoryNode) -> Result<()> {
        let result = if self.policy.access(path).can_read() {
            let (mode, xattrs) = (node.mode, node.xattrs);
            self.tree.put_directory(path, Attributes { mode, xattrs, ..Attributes::default() })
        } else {
            self.tree.mkdir(path)
        };
        map_occupied(result, path)
    }

    fn put(&mut self, path: &[u8], entry: Entry) -> Result<()> {
        // Without the link label, which is equal for all hard links to one file: another file in the full tree could
        // have the same label.
        map_occupied(self.tree.graft_at_same_path(path, &Entry { link_label: None, ..entry }), path)
    }
}

/// Converts the error that the path, or a parent of it, has an entry of another type to [`LiftError::Occupied`]: the
/// agent cannot see that entry.
fn map_occupied(result: std::result::Result<(), TreeError>, path: &[u8]) -> Result<()> {
    match result {
        Err(TreeError::NotADirectory { .. } | TreeError::IsADirectory { .. }) => {
            Err(LiftError::Occupied { path: TreePath(path.to_vec()) })
        }
        result => Ok(result?),
    }
}
