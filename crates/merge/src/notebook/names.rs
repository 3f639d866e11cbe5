//! Generated names of cells, and the merged order of cells. Versions of the same cell have equal names.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::cells::Cell;

/// Names of all cells in the three versions.
///
/// A cell of the base, and each cell that matches it, is named by its index in the base. Cells that both
/// sides added in the same position are named `+=` and the position: the index of the base cell before it, or
/// `-`. Cells that both sides added with the same id are named `+i` and the id, and all other added cells
/// `+b` and the block of consecutive cells that they are in.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) base: Vec<String>,
    pub(super) ours: Vec<String>,
    pub(super) theirs: Vec<String>,
    /// Display name of each cell in paths of conflicts, by name.
    pub(super) labels: HashMap<String, String>,
}

/// Cells of a side, with the index of the matching base cell for each.
#[derive(Clone, Copy)]
pub(super) struct SideCells<'c, 'a> {
    pub(super) cells: &'c [Cell<'a>],
    pub(super) matched: &'c [Option<usize>],
}

impl Names {
    pub(super) fn new(base: &[Cell<'_>], ours: SideCells<'_, '_>, theirs: SideCells<'_, '_>) -> Self {
        let base_name = |index: usize| index.to_string();
        let matched = |side: SideCells<'_, '_>| -> Vec<String> {
            side.matched.iter().map(|base_index| base_index.map(base_name).unwrap_or_default()).collect()
        };
        let mut names = Self {
            base: (0..base.len()).map(base_name).collect(),
            ours: matched(ours),
            theirs: matched(theirs),
            labels: HashMap::new(),
        };
        names.name_added(ours, theirs);
        let labels = [(&names.base, base), (&names.ours, ours.cells), (&names.theirs, theirs.cells)];
        for (version_names, cells) in labels {
            for (index, (name, cell)) in version_names.iter().zip(cells).enumerate() {
                let label = || cell.id.map_or_else(|| index.to_string(), |id| format!("id={id}"));
                names.labels.entry(name.clone()).or_insert_with(label);
            }
        }
        names
    }

    /// Sets the names of added cells. Consecutive cells that one side added get names with a common prefix,
    /// so that the merge keeps them together.
    fn name_added(&mut self, ours: SideCells<'_, '_>, theirs: SideCells<'_, '_>) {
        let (our_runs, their_runs) = (added_runs(ours), added_runs(theirs));
        let (our_ids, their_ids) = (added_ids(ours), added_ids(theirs));
        let ids_of_both: HashSet<&str> = our_ids.intersection(&their_ids).copied().collect();
        for (predecessor, ours_run) in &our_runs {
            let Some(theirs_run) = their_runs.get(predecessor) else { continue };
            let (prefix, suffix) =
                count_added_by_both(&ours.cells[ours_run.clone()], &theirs.cells[theirs_run.clone()]);
            let position = position_name(*predecessor);
            for offset in 0..prefix {
                let name = format!("+={position}/a{offset:06}");
                self.ours[ours_run.start + offset].clone_from(&name);
                self.theirs[theirs_run.start + offset] = name;
            }
            for offset in 1..=suffix {
                let name = format!("+={position}/z{offset:06}");
                self.ours[ours_run.end - offset].clone_from(&name);
                self.theirs[theirs_run.end - offset] = name;
            }
        }
        for (names, side, runs) in [(&mut self.ours, ours, our_runs), (&mut self.theirs, theirs, their_runs)]
        {
            for (predecessor, run) in runs {
                let unnamed: Vec<usize> = run.filter(|index| names[*index].is_empty()).collect();
                let mut hasher = blake3::Hasher::new();
                for index in &unnamed {
                    hasher.update(&side.cells[*index].hash);
                }
                let id = unnamed.first().and_then(|index| side.cells[*index].id).unwrap_or_default();
                let block =
                    format!("+b{id}/{}/{}", &hasher.finalize().to_hex()[..32], position_name(predecessor));
                for (number, index) in unnamed.into_iter().enumerate() {
                    names[index] = match side.cells[index].id.filter(|id| ids_of_both.contains(id)) {
                        Some(id) => format!("+i{id}"),
                        None => format!("{block}/{number:06}"),
                    };
                }
            }
        }
    }
}

/// Returns the name of the position after the base cell `predecessor`, or of the start of the notebook.
fn position_name(predecessor: Option<usize>) -> String {
    predecessor.map_or_else(|| "-".to_owned(), |predecessor| predecessor.to_string())
}

/// Returns the ranges of consecutive added cells, by the index of the base cell before them.
fn added_runs(side: SideCells<'_, '_>) -> HashMap<Option<usize>, Range<usize>> {
    let mut runs: HashMap<Option<usize>, Range<usize>> = HashMap::new();
    let mut predecessor = None;
    for (index, matched) in side.matched.iter().enumerate() {
        if matched.is_some() {
            predecessor = *matched;
        } else {
            runs.entry(predecessor).or_insert(index..index).end = index + 1;
        }
    }
    runs
}

fn added_ids<'a>(side: SideCells<'_, 'a>) -> HashSet<&'a str> {
    let added = side.cells.iter().zip(side.matched).filter(|(_, matched)| matched.is_none());
    added.filter_map(|(cell, _)| cell.id).collect()
}

/// Returns the number of equal cells at the start of two ranges of added cells, and at the end.
fn count_added_by_both(ours: &[Cell<'_>], theirs: &[Cell<'_>]) -> (usize, usize) {
    let same = |(one, other): (&Cell<'_>, &Cell<'_>)| one.hash == other.hash;
    let shorter = ours.len().min(theirs.len());
    let prefix = ours.iter().zip(theirs).take_while(|pair| same(*pair)).count();
    let suffix = ours.iter().rev().zip(theirs.iter().rev()).take_while(|pair| same(*pair)).count();
    (prefix, suffix.min(shorter - prefix))
}

/// Merges the orders of both sides. `None` if one side moved no cells, or both moved the same cell to
/// different positions. The arguments list the cells that all versions have, by their index in the base.
pub(super) fn merge_order(ours: &[usize], theirs: &[usize]) -> Option<Vec<usize>> {
    if ours == theirs || ours.is_sorted() || theirs.is_sorted() {
        return None;
    }
    // The result does not depend on the order of the sides.
    let (ours, theirs) = (ours.min(theirs), ours.max(theirs));
    let (our_moved, their_moved) = (moved(ours), moved(theirs));
    let (our_predecessors, their_predecessors) = (predecessors(ours), predecessors(theirs));
    if our_moved.intersection(&their_moved).any(|cell| our_predecessors[cell] != their_predecessors[cell]) {
        return None;
    }
    let is_placed_by_theirs = |cell: &usize| their_moved.contains(cell) && !our_moved.contains(cell);
    // Successor of each cell; the successor of `None` is the first cell.
    let mut next: HashMap<Option<usize>, usize> = HashMap::new();
    let mut previous = None;
    for cell in ours.iter().filter(|cell| !is_placed_by_theirs(cell)) {
        next.insert(previous, *cell);
        previous = Some(*cell);
    }
    // Last cell before the current one that our side did not move, or that both sides moved.
    let mut predecessor = None;
    for cell in theirs {
        if is_placed_by_theirs(cell) {
            let mut after = predecessor;
            // Of cells that both sides moved to the same position, the first in the base comes first.
            while let Some(moved) = next.get(&after).filter(|next| our_moved.contains(next) && *next < cell) {
                after = Some(*moved);
            }
            if let Some(successor) = next.insert(after, *cell) {
                next.insert(Some(*cell), successor);
            }
        }
        if !our_moved.contains(cell) || their_moved.contains(cell) {
            predecessor = Some(*cell);
        }
    }
    let order: Vec<usize> =
        std::iter::successors(next.get(&None), |cell| next.get(&Some(**cell))).copied().collect();
    (order.len() == ours.len()).then_some(order)
}

/// Returns the cell before each cell; `None` for the first one.
fn predecessors(order: &[usize]) -> HashMap<usize, Option<usize>> {
    let predecessors = std::iter::once(None).chain(order.iter().copied().map(Some));
    order.iter().copied().zip(predecessors).collect()
}

/// Returns the cells that must move for an ascending order: all except a longest ascending subsequence.
fn moved(order: &[usize]) -> HashSet<usize> {
    // For each length, the index at which the ascending subsequence of this length with the smallest last
    // element ends.
    let mut ends: Vec<usize> = Vec::new();
    // Index of the previous element in the longest ascending subsequence that ends at each element.
    let mut previous: Vec<Option<usize>> = Vec::with_capacity(order.len());
    for (index, cell) in order.iter().enumerate() {
        let length = ends.partition_point(|end| order[*end] < *cell);
        previous.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let mut moved: HashSet<usize> = order.iter().copied().collect();
    let mut unmoved = ends.last().copied();
    while let Some(index) = unmoved {
        moved.remove(&order[index]);
        unmoved = previous[index];
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permutations(count: usize) -> Vec<Vec<usize>> {
        let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
        let with_last = |shorter: Vec<usize>| {
            (0..count).map(move |index| {
                let mut longer = shorter.clone();
                longer.insert(index, last);
                longer
            })
        };
        permutations(last).into_iter().flat_map(with_last).collect()
    }

    #[test]
    fn merged_order_keeps_moves_of_both_sides() {
        assert_eq!(merge_order(&[1, 0, 2, 3, 4], &[0, 1, 2, 4, 3]), Some(vec![1, 0, 2, 4, 3]));
        assert_eq!(merge_order(&[4, 0, 1, 2, 3], &[0, 2, 3, 1, 4]), Some(vec![4, 0, 2, 3, 1]));
        // Both moved different cells behind the same one: the order does not depend on the order of the
        // sides.
        let (one, other) = ([0, 3, 1, 2, 4, 5], [0, 5, 1, 2, 3, 4]);
        assert_eq!(merge_order(&one, &other), Some(vec![0, 3, 5, 1, 2, 4]));
        assert_eq!(merge_order(&other, &one), Some(vec![0, 3, 5, 1, 2, 4]));
        // All combinations of orders of four cells.
        let orders = permutations(4);
        for one in &orders {
            for other in &orders {
                let joined = merge_order(one, other);
                assert_eq!(joined, merge_order(other, one), "{one:?} {other:?}");
                let is_whole = |order: &Vec<usize>| orders.contains(order);
                assert!(joined.as_ref().is_none_or(is_whole), "{one:?} {other:?}: {joined:?}");
            }
        }
        // Both moved the same cell to different positions.
        assert_eq!(merge_order(&[4, 0, 1, 2, 3], &[0, 1, 4, 2, 3]), None);
        // One side moved nothing.
        assert_eq!(merge_order(&[1, 0], &[0, 1]), None);
    }
}
