//! Three-way diff: the changes of two trees relative to their common base.

use super::{Comparison, Difference, Directory, root};
use crate::error::Result;
use crate::id::NodeId;
use crate::tree::Tree;

/// Changes of two trees relative to their common base.
#[derive(Debug, Default)]
pub struct ThreeWayDiff {
    /// Changes of our tree.
    pub ours: SideDiff,
    /// Changes of their tree.
    pub theirs: SideDiff,
}

/// Changes of one of two trees relative to their common base.
#[derive(Debug, Default)]
pub struct SideDiff {
    /// Differences between the base and this tree in directories that both trees changed, sorted by path. Renames are
    /// detected only among these differences.
    pub differences: Vec<Difference>,
    /// Directories that only this tree changed: the other tree has them unchanged, or removed them. They were not read.
    pub one_sided: Vec<Subtree>,
}

/// A changed directory that was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    /// Path of the directory; empty for the whole tree.
    pub path: Vec<u8>,
    /// Id of the changed directory's node.
    pub(crate) id: NodeId,
    /// Id of the node with its modification times; `None` if they are not known.
    pub(crate) times: Option<NodeId>,
}

impl Subtree {
    /// Returns the index of the last slash in the path.
    fn slash(&self) -> Option<usize> {
        self.path.iter().rposition(|byte| *byte == b'/')
    }

    /// Returns the path of the parent directory; `None` for the whole tree.
    pub(crate) fn parent(&self) -> Option<&[u8]> {
        (!self.path.is_empty()).then(|| &self.path[..self.slash().unwrap_or(0)])
    }

    /// Returns the last component of the path.
    pub(crate) fn name(&self) -> &[u8] {
        &self.path[self.slash().map_or(0, |slash| slash + 1)..]
    }
}

/// Compares two trees with their common `base`. Directories that only one of them changed are not read.
pub fn diff_both(base: &Tree, ours: &Tree, theirs: &Tree) -> Result<ThreeWayDiff> {
    let mut sides = [ours, theirs].map(|tree| Side::new(base, tree));
    for (side, tree) in sides.iter_mut().zip([ours, theirs]) {
        side.comparison.push(Vec::new(), root(base), root(tree))?;
    }
    let mut queue = Vec::new();
    loop {
        match_directories(&mut sides, &mut queue);
        let Some((path, base, changed)) = queue.pop() else { break };
        for (side, changed) in sides.iter_mut().zip(changed) {
            side.comparison.compare_directories(&path, base, changed)?;
        }
    }
    let [ours, theirs] = sides;
    Ok(ThreeWayDiff { ours: ours.finish()?, theirs: theirs.finish()? })
}

/// Comparison of the base with one of the two sides.
struct Side<'s> {
    comparison: Comparison<'s>,
    /// Directories that only this side changed, which are not read.
    one_sided: Vec<Subtree>,
}

impl<'s> Side<'s> {
    fn new(base: &'s Tree, tree: &'s Tree) -> Self {
        Self { comparison: Comparison::new(base.store(), tree.store()), one_sided: Vec::new() }
    }

    /// Records a directory that only this side changed.
    fn leave_unread(&mut self, path: Vec<u8>, directory: Directory) {
        self.one_sided.push(Subtree { path, id: directory.id, times: directory.times });
    }

    fn finish(self) -> Result<SideDiff> {
        Ok(SideDiff { differences: self.comparison.finish()?, one_sided: self.one_sided })
    }
}

/// Matches the changed directories that the two sides queued, which are sorted by name. Pushes the directories that
/// both sides changed to `queue`: path, directory of the base, and directories of the two sides. Leaves the other
/// directories unread.
fn match_directories(sides: &mut [Side<'_>; 2], queue: &mut Vec<(Vec<u8>, Directory, [Directory; 2])>) {
    let [ours, theirs] = sides;
    let mut their_queue = std::mem::take(&mut theirs.comparison.queue).into_iter().peekable();
    for (path, old, new) in std::mem::take(&mut ours.comparison.queue) {
        while let Some((path, _, new)) = their_queue.next_if(|(their_path, ..)| *their_path < path) {
            theirs.leave_unread(path, new);
        }
        match their_queue.next_if(|(their_path, ..)| *their_path == path) {
            Some((path, _, changed)) => queue.push((path, old, [new, changed])),
            None => ours.leave_unread(path, new),
        }
    }
    for (path, _, new) in their_queue {
        theirs.leave_unread(path, new);
    }
}
