//! Lift: applies a change of a view to the full tree.
//!
//! The result is the full tree with the smallest change whose view is the changed view. Hidden entries stay as
//! they are. A directory that is gone from the view is removed if nothing is left in it, and either the view would
//! show it although it is empty, a file or symlink takes its place, or the agent may delete it. Otherwise it stays,
//! and the view does not show it. That the view of the result is the changed view is checked, not assumed.

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
    /// An entry of the full tree that the agent cannot see is in the way. The path is the one that the agent
    /// changed: take that change back and lift again.
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
    /// The view of the result would not be the changed view. Nothing was written.
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
    // other attributes of a directory that is shown only because of entries below it. Its new nodes are in memory
    // only, not in the store.
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

/// Fails if a view lost a file or symlink when it was filtered again, so that the agent may not see it. `differences`
/// are those between the view and the result of the filter.
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
    /// Directories to remove with everything in them, all of which the agent sees.
    removed_whole: Vec<Vec<u8>>,
    /// Directories that are removed if nothing is left in them, and if the view would show them or the agent may
    /// delete them, see [`Lift::remove_directories`].
    removed_directories: Vec<Vec<u8>>,
    /// Directories that are replaced by a leaf, so nothing may be left in them. The access does not matter.
    replaced_directories: Vec<Vec<u8>>,
    /// Directories to create, or whose attributes are set.
    directories: Vec<(Vec<u8>, DirectoryNode)>,
    /// Directories to add with everything in them, all of which the agent sees.
    added_whole: Vec<(Vec<u8>, Entry)>,
    /// Files and symlinks to add at paths where nothing may be, unlike `changed_leaves`.
    added_leaves: Vec<(Vec<u8>, Entry)>,
    /// Files and symlinks that replace those at their paths.
    changed_leaves: Vec<(Vec<u8>, Entry)>,
}

struct Lift<'a> {
    policy: &'a AgentPolicy,
    merged_view: &'a Tree,
    tree: VirtualTree,
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

    /// Removes directories that are gone from the view, innermost first.
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

    /// Creates a directory or sets its attributes. A directory that is hidden itself gets none.
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
        // Without the link label: in the full tree, another file could have the same.
        map_occupied(self.tree.graft_at_same_path(path, &Entry { link_label: None, ..entry }), path)
    }
}

/// Replaces an error that an entry, which the agent cannot see, is in the way by [`LiftError::Occupied`].
fn map_occupied(result: std::result::Result<(), TreeError>, path: &[u8]) -> Result<()> {
    match result {
        Err(TreeError::NotADirectory { .. } | TreeError::IsADirectory { .. }) => {
            Err(LiftError::Occupied { path: TreePath(path.to_vec()) })
        }
        result => Ok(result?),
    }
}
