//! Two things that want one name.

use std::collections::BTreeMap;

use workspace_state::TreePath;

use super::Result;
use super::changes::{Change, Changes};
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::{Merger, Placed, Placement};
use super::paths::{below, join, moved, name, parent, touches};

/// What is put after a name that is taken.
const BESIDE: &str = "~theirs";
/// Longest name that Linux takes.
const NAME_MAX: usize = 255;

/// Puts leaves and directories of one name beside each other. What ours has keeps its name.
pub(super) fn tell_apart(
    merger: &mut Merger<'_>,
    result: &mut Placement,
    ours: &Changes<'_>,
    theirs: &mut Changes<'_>,
) -> Result<()> {
    for path in clashes(result, ours, theirs) {
        let Some(placed) = result.get_mut(&path) else { continue };
        let mut conflict = TreeConflict::new(ConflictClass::FileDirectory, &path);
        let place;
        if let Some(present) = &placed.present {
            conflict.ours = Some(TreeVersion::new(&path, present.clone()));
            let entry = merger.theirs.entry(&path)?;
            conflict.theirs = entry.map(|entry| TreeVersion::new(&path, entry));
            place = merger.free_name(&path, result)?;
            move_directory(result, theirs, &path, &place);
        } else {
            let leaf = placed.leaf.take();
            conflict.ours = merger.ours.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            conflict.theirs = merger.theirs.entry(&path)?.map(|entry| TreeVersion::new(&path, entry));
            place = merger.free_name(&path, result)?;
            result.insert(place.clone(), Placed { leaf, present: None });
        }
        merger.tell(TreeConflict { beside: Some(TreePath(place)), ..conflict });
    }
    Ok(())
}

/// Leaves of the result that are directories as well, outermost first.
fn clashes(result: &Placement, ours: &Changes<'_>, theirs: &Changes<'_>) -> Vec<Vec<u8>> {
    let is_directory = |path: &[u8]| {
        let added = |side: &Changes<'_>, counts: fn(&Change) -> bool| {
            let here = side.directories.get_key_value(path).into_iter();
            here.chain(below(&side.directories, path))
                .any(|(path, change)| side.has_added(path) && counts(change))
        };
        // What theirs has in a directory is in the result, unless it waits for somebody.
        below(result, path).any(|(_, placed)| placed.leaf.is_some())
            || added(ours, |_| true)
            || added(theirs, Change::is_empty_directory)
    };
    let leaves = result.iter().filter(|(_, placed)| placed.leaf.is_some());
    leaves.filter(|(path, _)| is_directory(path)).map(|(path, _)| path.clone()).collect()
}

/// Moves what the result has below a path elsewhere. All of it is theirs: ours has a leaf there.
fn move_directory(result: &mut Placement, theirs: &mut Changes<'_>, path: &[u8], to: &[u8]) {
    let paths: Vec<Vec<u8>> = below(result, path).map(|(path, _)| path.clone()).collect();
    for from in paths {
        let leaf = result.get_mut(&from).and_then(|placed| placed.leaf.take());
        if leaf.is_some() {
            result.insert(moved(&from, path, to), Placed { leaf, present: None });
        }
    }
    let directories = below(&theirs.directories, path).map(|(path, _)| path.clone());
    let directories: Vec<Vec<u8>> = [path.to_vec()].into_iter().chain(directories).collect();
    for from in directories.into_iter().filter(|from| theirs.has_added(from)).collect::<Vec<_>>() {
        if let Some(change) = theirs.directories.remove(&from) {
            theirs.directories.insert(moved(&from, path, to), change);
        }
    }
}

impl Merger<'_> {
    /// A name beside a path that nothing has.
    pub(super) fn free_name<V>(&self, path: &[u8], result: &BTreeMap<Vec<u8>, V>) -> Result<Vec<u8>> {
        let mut number = 0;
        loop {
            let place = beside(path, number);
            let taken = touches(result, &place)
                || self.ours.entry(&place)?.is_some()
                || self.theirs.entry(&place)?.is_some();
            if !taken {
                return Ok(place);
            }
            number += 1;
        }
    }
}

fn beside(path: &[u8], number: usize) -> Vec<u8> {
    let end = if number == 0 { BESIDE.to_owned() } else { format!("{BESIDE}{number}") };
    let name = name(path);
    let name = &name[..name.len().min(NAME_MAX - end.len())];
    join(parent(path).unwrap_or_default(), &[name, end.as_bytes()].concat())
}
