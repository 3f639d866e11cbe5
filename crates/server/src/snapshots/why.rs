//! Causes of differences: the snapshots between two others in which each file changed.
//!
//! The walk follows the parents of the new snapshot back to the old one. Each snapshot on the way is a *step*. Its
//! differences from its parent are the entries that it changed: it is a *cause* of their change. A snapshot with
//! several parents is a cause only of entries that differ from all of them.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::Bound;
use std::time::Instant;

use workspace_state::{
    Difference, DifferenceKind, Snapshot, SnapshotId, Store, StoreError, Timestamp, Tree, TreeError, diff,
};

/// Maximum number of steps.
const STEPS_MAX: usize = 1_000;
/// Maximum number of snapshots that are visited to find the steps, among them ancestors of the old snapshot.
const VISITS_MAX: usize = 10_000;
/// Maximum number of causes of one entry; the newest are kept.
const CAUSES_MAX: usize = 20;

/// Path of an entry that differs, and its former path if it was renamed.
pub(crate) type EntryPaths = (Vec<u8>, Option<Vec<u8>>);

/// Snapshots that changed entries.
#[derive(Debug)]
pub(super) struct Causes {
    /// Snapshots that changed at least one of the entries, newest first.
    pub(super) steps: Vec<Snapshot>,
    /// For each entry, the indexes in `steps` of the snapshots that changed it, newest first.
    pub(super) of_entries: Vec<Vec<usize>>,
    /// False if there may be other causes: the old snapshot is no ancestor of the new one, a snapshot between them was
    /// removed, or a limit was reached.
    pub(super) is_complete: bool,
}

/// Finds the snapshots between `a` and `b` in which the entries changed. Stops at `deadline`. A former path of an entry
/// for which `shows` returns false is not followed: its changes are no causes.
pub(super) fn find_causes(
    store: &Store,
    (a, b): (&Snapshot, &Snapshot),
    entries: &[EntryPaths],
    shows: &dyn Fn(&[u8]) -> bool,
    deadline: Instant,
) -> Result<Causes, StoreError> {
    let (steps, mut is_complete) = steps_between(store, a, b)?;
    let mut attribution = Attribution::new(entries, shows);
    let mut causes = Vec::new();
    for step in steps {
        if Instant::now() >= deadline {
            is_complete = false;
            break;
        }
        let Some(differences) = changes_of(store, &step)? else {
            is_complete = false;
            continue;
        };
        if attribution.add_step(causes.len(), &differences) {
            causes.push(step);
        }
    }
    is_complete &= !attribution.is_cut;
    Ok(Causes { steps: causes, of_entries: attribution.causes, is_complete })
}

/// Returns the differences between a snapshot and its parents; `None` if a parent was removed. With several parents, only
/// entries that differ from all of them.
fn changes_of(store: &Store, snapshot: &Snapshot) -> Result<Option<Vec<Difference>>, StoreError> {
    let to = Tree::of_snapshot(store, snapshot)?;
    let mut common: Option<Vec<Difference>> = None;
    for parent in &snapshot.parents {
        let Some(parent) = store.find_snapshot(parent)? else { return Ok(None) };
        let differences = diff(&Tree::of_snapshot(store, &parent)?, &to)?;
        common = Some(match common {
            None => differences,
            Some(mut common) => {
                // Both lists are sorted by path.
                let differs = |path: &Vec<u8>| differences.binary_search_by(|it| it.path.cmp(path)).is_ok();
                common.retain(|it| differs(&it.path));
                common
            }
        });
    }
    match common {
        Some(differences) => Ok(Some(differences)),
        None => Ok(Some(diff(&empty_tree(store)?, &to)?)),
    }
}

fn empty_tree(store: &Store) -> Result<Tree, StoreError> {
    store.empty_tree()?.preview().map_err(|error| match error {
        TreeError::Store(error) => error,
        // No other error concerns an empty tree.
        other => StoreError::Refused(other.to_string()),
    })
}

/// Entries of a comparison, and the snapshots that changed them.
struct Attribution<'a> {
    /// Returns false for a path that the reader must not see.
    shows: &'a dyn Fn(&[u8]) -> bool,
    /// Indexes of the entries by their paths in the snapshots that come next, which are older.
    by_path: BTreeMap<Vec<u8>, Vec<usize>>,
    /// For each entry, the indexes of the snapshots that changed it.
    causes: Vec<Vec<usize>>,
    /// True if an entry has more causes than are kept.
    is_cut: bool,
}

impl<'a> Attribution<'a> {
    fn new(entries: &[EntryPaths], shows: &'a dyn Fn(&[u8]) -> bool) -> Self {
        let mut by_path = BTreeMap::<Vec<u8>, Vec<usize>>::new();
        for (index, (path, from)) in entries.iter().enumerate() {
            by_path.entry(path.clone()).or_default().push(index);
            if let Some(from) = from {
                by_path.entry(from.clone()).or_default().push(index);
            }
        }
        Self { shows, by_path, causes: vec![Vec::new(); entries.len()], is_cut: false }
    }

    /// Adds a snapshot as a cause of the entries that it changed. Returns false if it changed none.
    fn add_step(&mut self, step: usize, differences: &[Difference]) -> bool {
        let mut changed = Vec::new();
        // Paths that entries had before the renames of this step.
        let mut aliases = Vec::new();
        for difference in differences {
            changed.extend(self.by_path.get(&difference.path).into_iter().flatten().copied());
            let DifferenceKind::Renamed { from } = &difference.kind else { continue };
            changed.extend(self.by_path.get(from).into_iter().flatten().copied());
            // The differences do not list the entries below a renamed directory.
            for (path, entries) in self.at_or_below(&difference.path) {
                changed.extend(entries.iter().copied());
                let before = [from.as_slice(), &path[difference.path.len()..]].concat();
                aliases.push((before, entries.clone()));
            }
        }
        // Added after all differences of the step: one of them may rename an entry to a path from which another was
        // renamed.
        for (path, entries) in aliases.into_iter().filter(|(path, _)| (self.shows)(path)) {
            let known = self.by_path.entry(path).or_default();
            known.extend(entries);
            known.sort_unstable();
            known.dedup();
        }
        changed.sort_unstable();
        changed.dedup();
        let mut is_cause = false;
        for entry in changed {
            match self.causes[entry].len() < CAUSES_MAX {
                true => {
                    self.causes[entry].push(step);
                    is_cause = true;
                }
                false => self.is_cut = true,
            }
        }
        is_cause
    }

    /// Returns the known paths that are `path` or below it.
    fn at_or_below(&self, path: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Vec<usize>)> {
        let exact = self.by_path.get_key_value(path);
        let below = [path, b"/"].concat();
        let range = self.by_path.range::<[u8], _>((Bound::Included(below.as_slice()), Bound::Unbounded));
        exact.into_iter().chain(range.take_while(move |(path, _)| path.starts_with(&below)))
    }
}

/// Flag of the old snapshot and its ancestors.
const FROM_A: u8 = 1;
/// Flag of the new snapshot and its ancestors.
const FROM_B: u8 = 2;

/// Walk along the histories of two snapshots at once, newest first.
#[derive(Default)]
struct Walk {
    /// Snapshots whose parents are still to be visited.
    queue: BinaryHeap<(Timestamp, SnapshotId)>,
    /// Snapshots that were reached, with their flags.
    found: HashMap<SnapshotId, (u8, Snapshot)>,
}

impl Walk {
    /// Adds flags to a snapshot, and queues it if one of them is new.
    fn reach(&mut self, snapshot: Snapshot, flags: u8) {
        let key = (snapshot.time, snapshot.id);
        let (known, _) = self.found.entry(snapshot.id).or_insert((0, snapshot));
        if *known | flags != *known {
            *known |= flags;
            self.queue.push(key);
        }
    }

    /// Returns true while the queue has an ancestor of the new snapshot that is not known as an ancestor of the old
    /// one.
    fn has_steps(&self) -> bool {
        self.queue.iter().any(|(_, id)| self.found.get(id).is_some_and(|(flags, _)| *flags == FROM_B))
    }
}

/// Returns the ancestors of `b` that are not ancestors of `a`, `b` first and `a` excluded, and whether all were found.
fn steps_between(store: &Store, a: &Snapshot, b: &Snapshot) -> Result<(Vec<Snapshot>, bool), StoreError> {
    let mut walk = Walk::default();
    walk.reach(b.clone(), FROM_B);
    walk.reach(a.clone(), FROM_A);
    let (mut is_complete, mut visits, mut steps) = (true, 0, 0);
    while walk.has_steps() {
        store.cancel_flag().check()?;
        let Some((_, id)) = walk.queue.pop() else { break };
        let Some((flags, parents)) = walk.found.get(&id).map(|(flags, it)| (*flags, it.parents.clone()))
        else {
            continue;
        };
        visits += 1;
        steps += usize::from(flags == FROM_B);
        if visits > VISITS_MAX || steps > STEPS_MAX {
            is_complete = false;
            break;
        }
        for parent in parents {
            match store.find_snapshot(&parent)? {
                Some(parent) => walk.reach(parent, flags),
                None => is_complete &= flags & FROM_B == 0,
            }
        }
    }
    is_complete &= walk.found.get(&a.id).is_some_and(|(flags, _)| flags & FROM_B != 0);
    let only_b = walk.found.into_values().filter(|(flags, _)| *flags == FROM_B).map(|(_, snapshot)| snapshot);
    let mut steps: Vec<Snapshot> = only_b.collect();
    steps.sort_unstable_by_key(|snapshot| std::cmp::Reverse((snapshot.time, snapshot.id)));
    steps.truncate(STEPS_MAX);
    Ok((steps, is_complete))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use workspace_state::{NewSnapshot, VirtualTree};

    use super::*;

    struct Fixture {
        store: Store,
        _home: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            Self { store: Store::open_or_create(home.path().join("store")).unwrap(), _home: home }
        }

        /// Commits the changes of `edit` to a snapshot, as a child of `parents`, the first of which it is based on.
        fn step(&self, parents: &[&Snapshot], edit: impl Fn(&mut VirtualTree)) -> Snapshot {
            let mut tree = match parents.first() {
                Some(parent) => self.store.restore(&parent.id).unwrap(),
                None => self.store.empty_tree().unwrap(),
            };
            edit(&mut tree);
            let parents = parents.iter().map(|parent| parent.id).collect();
            tree.commit(NewSnapshot { parents, ..NewSnapshot::default() }).unwrap()
        }

        /// Returns the paths that differ between two snapshots, each with the causes, and whether those are all.
        fn why(&self, a: &Snapshot, b: &Snapshot) -> (Vec<(String, Vec<SnapshotId>)>, bool) {
            let open = |snapshot| Tree::of_snapshot(&self.store, snapshot).unwrap();
            let differences = diff(&open(a), &open(b)).unwrap();
            let paths: Vec<EntryPaths> = differences.iter().map(super::super::diff::entry_paths).collect();
            let deadline = Instant::now() + Duration::from_secs(600);
            let found = find_causes(&self.store, (a, b), &paths, &|_| true, deadline).unwrap();
            let ids = |indexes: &Vec<usize>| indexes.iter().map(|index| found.steps[*index].id).collect();
            let named = paths.iter().zip(&found.of_entries);
            let named =
                named.map(|((path, _), causes)| (String::from_utf8_lossy(path).into_owned(), ids(causes)));
            (named.collect(), found.is_complete)
        }
    }

    fn write(path: &'static str, text: &'static str) -> impl Fn(&mut VirtualTree) {
        move |tree| tree.write(path, text.as_bytes().to_vec()).unwrap()
    }

    fn rename(from: &'static str, to: &'static str) -> impl Fn(&mut VirtualTree) {
        move |tree| tree.rename(from, to).unwrap()
    }

    #[test]
    fn each_file_has_the_snapshots_that_changed_it() {
        let fixture = Fixture::new();
        let a = fixture.step(&[], write("old", "0"));
        let one = fixture.step(&[&a], write("x", "1"));
        let two = fixture.step(&[&one], write("y", "2"));
        let three = fixture.step(&[&two], write("x", "3"));
        let b = fixture.step(&[&three], |_| {});
        let expected = vec![("x".to_owned(), vec![three.id, one.id]), ("y".to_owned(), vec![two.id])];
        assert_eq!(fixture.why(&a, &b), (expected, true));
        assert_eq!(fixture.why(&b, &b), (Vec::new(), true));
    }

    #[test]
    fn causes_follow_renames_of_files_and_directories() {
        let fixture = Fixture::new();
        let a = fixture.step(&[], |_| {});
        let one = fixture.step(&[&a], write("tmp/file", "some content"));
        let two = fixture.step(&[&one], rename("tmp", "dir"));
        let three = fixture.step(&[&two], rename("dir/file", "dir/named"));
        let (found, is_complete) = fixture.why(&a, &three);
        let named = found.iter().find(|(path, _)| path == "dir/named").unwrap();
        assert_eq!(named.1, [three.id, two.id, one.id]);
        assert!(is_complete);
    }

    #[test]
    fn a_merge_causes_only_the_entries_that_differ_from_all_parents() {
        let fixture = Fixture::new();
        let a = fixture.step(&[], write("base", "0"));
        let left = fixture.step(&[&a], write("left", "1"));
        let right = fixture.step(&[&a], write("right", "2"));
        let merged = fixture.step(&[&left, &right], |tree| {
            write("right", "2")(tree);
            write("merged", "3")(tree);
        });
        let expected = [("left", left.id), ("merged", merged.id), ("right", right.id)];
        let expected = expected.map(|(path, id)| (path.to_owned(), vec![id])).to_vec();
        assert_eq!(fixture.why(&a, &merged), (expected, true));
    }

    #[test]
    fn missing_and_unrelated_snapshots_are_not_hidden() {
        let fixture = Fixture::new();
        let a = fixture.step(&[], |_| {});
        let one = fixture.step(&[&a], write("x", "1"));
        let two = fixture.step(&[&one], write("y", "2"));
        let three = fixture.step(&[&two], write("z", "3"));
        let sibling = fixture.step(&[&one], write("w", "4"));
        let (found, is_complete) = fixture.why(&sibling, &two);
        assert!(!is_complete, "{found:?}");
        let causes = |path: &str| found.iter().find(|it| it.0 == path).unwrap().1.clone();
        assert_eq!((causes("w"), causes("y")), (vec![], vec![two.id]));
        fixture.store.remove_snapshots(&[one.id]).unwrap();
        let (found, is_complete) = fixture.why(&a, &three);
        assert!(!is_complete);
        let z = ("z".to_owned(), vec![three.id]);
        assert!(found.contains(&z) && found.contains(&("x".to_owned(), vec![])), "{found:?}");
    }

    #[test]
    fn causes_of_one_entry_are_bounded() {
        let fixture = Fixture::new();
        let a = fixture.step(&[], |_| {});
        let mut last = a.clone();
        for number in 0..CAUSES_MAX + 3 {
            last = fixture.step(&[&last], |tree| tree.write("x", number.to_string().into_bytes()).unwrap());
        }
        let (found, is_complete) = fixture.why(&a, &last);
        assert_eq!((found[0].1.len(), found[0].1[0], is_complete), (CAUSES_MAX, last.id, false));
    }
}
