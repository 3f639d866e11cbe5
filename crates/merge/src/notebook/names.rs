//! Generated names of the cells of a Jupyter notebook, and the merged order of cells. Versions of the same cell have
//! equal names, which do not depend on which side is ours.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::cells::Cell;

/// Names of all cells in the three versions.
///
/// - A cell of the base, and each cell that matches it: its index in the base.
/// - Equal cells that both sides added at the same position: `+=POSITION/aNUMBER` or `+=POSITION/zNUMBER`, counted
///   from the start or the end of the cells added there. The position is the index of the base cell before them, or
///   `-` at the start of the notebook.
/// - Other cells that both sides added with the same id: `+i` and the id.
/// - All other added cells: `+bID/HASH/POSITION/NUMBER`, with the id of the first of the consecutive cells that the
///   side added there, and a hash of all of them. Therefore they stay together when cells are sorted by name.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) base: Vec<String>,
    pub(super) ours: Vec<String>,
    pub(super) theirs: Vec<String>,
    /// Display name of each cell in paths of conflicts, by name.
    pub(super) labels: HashMap<String, String>,
}

/// Cells of a side.
#[derive(Clone, Copy)]
pub(super) struct SideCells<'c, 'a> {
    pub(super) cells: &'c [Cell<'a>],
    /// Index of the matching base cell for each cell; `None` for an added cell.
    pub(super) matched: &'c [Option<usize>],
}

impl Names {
    /// Names the cells of all versions.
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
        let versions = [(&names.base, base), (&names.ours, ours.cells), (&names.theirs, theirs.cells)];
        for (version_names, cells) in versions {
            for (index, (name, cell)) in version_names.iter().zip(cells).enumerate() {
                let label = || cell.id.map_or_else(|| index.to_string(), |id| format!("id={id}"));
                names.labels.entry(name.clone()).or_insert_with(label);
            }
        }
        names
    }

    /// Sets the names of added cells. Consecutive cells that only one side added get names with a common prefix,
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

/// Returns the ranges of consecutive added cells, by the index of the base cell that matches the cell before them;
/// `None` for cells at the start of the notebook.
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

/// Returns the ids of added cells.
fn added_ids<'a>(side: SideCells<'_, 'a>) -> HashSet<&'a str> {
    let added = side.cells.iter().zip(side.matched).filter(|(_, matched)| matched.is_none());
    added.filter_map(|(cell, _)| cell.id).collect()
}

/// Returns the number of cells that are equal at the start of two ranges of added cells, and at their end.
fn count_added_by_both(ours: &[Cell<'_>], theirs: &[Cell<'_>]) -> (usize, usize) {
    let same = |(one, other): (&Cell<'_>, &Cell<'_>)| one.hash == other.hash;
    let shorter = ours.len().min(theirs.len());
    let prefix = ours.iter().zip(theirs).take_while(|pair| same(*pair)).count();
    let suffix = ours.iter().rev().zip(theirs.iter().rev()).take_while(|pair| same(*pair)).count();
    (prefix, suffix.min(shorter - prefix))
}

/// Merges the orders of both sides. The arguments are the cells that all versions have, by their index in the base,
/// in the order of each side. `None` if the orders are equal, one side moved no cells, or both sides moved the same
/// cell to different positions.
pub(super) fn merge_order(ours: &[usize], theirs: &[usize]) -> Option<Vec<usize>> {
    if ours == theirs || ours.is_sorted() || theirs.is_sorted() {
        return None;
    }
    // The sides are put in a fixed order, so that the result does not depend on which side is ours.
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
    // Last cell of `theirs` before the current one, without cells that only our side moved.
    let mut predecessor = None;
    for cell in theirs {
        if is_placed_by_theirs(cell) {
            let mut after = predecessor;
            // If the sides moved different cells to the same position, the cell that is first in the base comes first.
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
    // For each length: of all ascending subsequences of this length, the one with the smallest last element is
    // chosen, and the index of this element is stored.
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

    /// Returns all orders of the numbers below `count`.
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
        // The sides moved different cells behind the same cell: the result does not depend on which side is ours.
        let (one, other) = ([0, 3, 1, 2, 4, 5], [0, 5, 1, 2, 3, 4]);
        assert_eq!(merge_order(&one, &other), Some(vec![0, 3, 5, 1, 2, 4]));
        assert_eq!(merge_order(&other, &one), Some(vec![0, 3, 5, 1, 2, 4]));
        // All combinations of orders of four cells.
        let orders = permutations(4);
        for one in &orders {
            for other in &orders {
                let merged = merge_order(one, other);
                assert_eq!(merged, merge_order(other, one), "{one:?} {other:?}");
                let is_whole = |order: &Vec<usize>| orders.contains(order);
                assert!(merged.as_ref().is_none_or(is_whole), "{one:?} {other:?}: {merged:?}");
            }
        }
        // Both sides moved the same cell to different positions.
        assert_eq!(merge_order(&[4, 0, 1, 2, 3], &[0, 1, 4, 2, 3]), None);
        // One side moved nothing.
        assert_eq!(merge_order(&[1, 0], &[0, 1]), None);
    }
}
