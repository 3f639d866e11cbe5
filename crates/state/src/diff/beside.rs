//! What two trees did to the one they come from, looked at together only where both did something.

use super::{Comparison, Difference, Directory, root};
use crate::error::Result;
use crate::id::NodeId;
use crate::tree::Tree;

/// What one of two trees did.
#[derive(Debug, Default)]
pub struct Beside {
    /// What differs in directories that the other tree changed too, sorted by path. Renames are found among these alone.
    pub differences: Vec<Difference>,
    /// Directories in such directories that the other tree has not changed inside: it has them as they were, or
    /// not at all any more.
    pub alone: Vec<Subtree>,
}

/// A directory that has not been looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subtree {
    /// Where it is; empty for the whole tree.
    pub path: Vec<u8>,
    pub(crate) id: NodeId,
    pub(crate) times: Option<NodeId>,
}

impl Subtree {
    fn slash(&self) -> Option<usize> {
        self.path.iter().rposition(|byte| *byte == b'/')
    }

    /// The path of the directory that holds it; nothing for the whole tree.
    pub(crate) fn parent(&self) -> Option<&[u8]> {
        (!self.path.is_empty()).then(|| &self.path[..self.slash().unwrap_or(0)])
    }

    /// Its name there.
    pub(crate) fn name(&self) -> &[u8] {
        &self.path[self.slash().map_or(0, |at| at + 1)..]
    }
}

/// What two trees did to `base`. Directories that only one of them changed are not read.
pub fn diff_beside(base: &Tree, one: &Tree, other: &Tree) -> Result<[Beside; 2]> {
    let mut sides = [one, other].map(|tree| Side::new(base, tree));
    for (side, tree) in sides.iter_mut().zip([one, other]) {
        side.comparison.push(Vec::new(), root(base), root(tree))?;
    }
    let mut waiting = Vec::new();
    loop {
        meet(&mut sides, &mut waiting);
        let Some((path, base, changed)) = waiting.pop() else { break };
        for (side, changed) in sides.iter_mut().zip(changed) {
            side.comparison.compare_directories(&path, base, changed)?;
        }
    }
    let [one, other] = sides;
    Ok([one.finish()?, other.finish()?])
}

struct Side<'s> {
    comparison: Comparison<'s>,
    alone: Vec<Subtree>,
}

impl<'s> Side<'s> {
    fn new(base: &'s Tree, tree: &'s Tree) -> Self {
        Self { comparison: Comparison::new(base.store(), tree.store()), alone: Vec::new() }
    }

    fn leave(&mut self, path: Vec<u8>, directory: Directory) {
        self.alone.push(Subtree { path, id: directory.id, times: directory.times });
    }

    fn finish(self) -> Result<Beside> {
        Ok(Beside { differences: self.comparison.finish()?, alone: self.alone })
    }
}

/// Takes what both sides found changed below one directory, which is in the order of names. What both have waits.
fn meet(sides: &mut [Side<'_>; 2], waiting: &mut Vec<(Vec<u8>, Directory, [Directory; 2])>) {
    let [one, other] = sides;
    let mut others = std::mem::take(&mut other.comparison.waiting).into_iter().peekable();
    for (path, old, new) in std::mem::take(&mut one.comparison.waiting) {
        while let Some((path, _, new)) = others.next_if(|(other, ..)| *other < path) {
            other.leave(path, new);
        }
        match others.next_if(|(other, ..)| *other == path) {
            Some((path, _, changed)) => waiting.push((path, old, [new, changed])),
            None => one.leave(path, new),
        }
    }
    for (path, _, new) in others {
        other.leave(path, new);
    }
}
