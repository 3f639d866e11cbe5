//! Trees that are written in the background, for those who need them later.
//!
//! One thread writes one after the other, since several would only take the disk from each other, and ends when nothing
//! waits. Owners take turns. A tree that finds no place in the queue is not written: whoever needs it next asks again.

use std::collections::{HashSet, VecDeque};
use std::sync::PoisonError;
use std::time::Instant;

use workspace_state::Snapshot;

use super::{Inner, Key, Layers, PATIENCE};

/// Trees of one owner that wait.
const OWNER_MAX: usize = 4;
/// Owners whose trees wait.
const OWNERS_MAX: usize = 64;

/// Trees that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Whose turn is next comes first.
    owners: VecDeque<(String, VecDeque<Snapshot>)>,
    /// The trees that wait, and the one that is being written.
    keys: HashSet<Key>,
    /// Set while a thread writes them.
    is_served: bool,
    is_closed: bool,
}

impl Queue {
    /// Adds a tree if there is a place for it. True if a thread is to be started, which then counts as there.
    fn push(&mut self, owner: &str, snapshot: &Snapshot) -> bool {
        let key = Key::of(snapshot);
        if self.is_closed || self.keys.contains(&key) || !self.add(owner, snapshot) {
            return false;
        }
        self.keys.insert(key);
        !std::mem::replace(&mut self.is_served, true)
    }

    fn add(&mut self, owner: &str, snapshot: &Snapshot) -> bool {
        let many = self.owners.len();
        match self.owners.iter_mut().find(|(name, _)| name == owner) {
            Some((_, waiting)) if waiting.len() < OWNER_MAX => waiting.push_back(snapshot.clone()),
            None if many < OWNERS_MAX => {
                self.owners.push_back((owner.to_owned(), VecDeque::from([snapshot.clone()])));
            }
            _ => return false,
        }
        true
    }

    /// The next tree. None if there is none: then there is no thread any more.
    fn pop(&mut self) -> Option<Snapshot> {
        let next = self.owners.pop_front().and_then(|(owner, mut waiting)| {
            let next = waiting.pop_front();
            if !waiting.is_empty() {
                self.owners.push_back((owner, waiting));
            }
            next
        });
        self.is_served = next.is_some();
        next
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.owners.clear();
    }
}

impl Layers {
    /// Writes the tree of a snapshot whole, unless it has a stack, while the caller goes on. Left out if its owner has
    /// enough trees waiting.
    pub(crate) fn write_later(&self, snapshot: &Snapshot, owner: &str) {
        if !self.0.lock().later.push(owner, snapshot) {
            return;
        }
        let layers = self.clone();
        let spawned =
            std::thread::Builder::new().name("materialise".to_owned()).spawn(move || layers.write_waiting());
        if let Err(error) = spawned {
            tracing::warn!(%error, "snapshots could not be materialised");
            // Nobody is going to write them.
            while let Some(snapshot) = self.next_waiting() {
                drop(Writing { layers: &self.0, key: Key::of(&snapshot) });
            }
        }
    }

    fn write_waiting(&self) {
        let store = self.0.store.with_cancel(self.0.stop.clone());
        while let Some(snapshot) = self.next_waiting() {
            let _writing = Writing { layers: &self.0, key: Key::of(&snapshot) };
            match self.find_or_write(&store, &snapshot, true) {
                Ok(_) => {}
                Err(error) if error.is_cancelled() => {}
                Err(error) => {
                    tracing::warn!(snapshot = %snapshot.id, %error, "a snapshot could not be materialised");
                }
            }
        }
    }

    fn next_waiting(&self) -> Option<Snapshot> {
        let next = self.0.lock().later.pop();
        self.0.done.notify_all();
        next
    }

    /// Returns true while something is being written in the background.
    pub(crate) fn is_writing(&self) -> bool {
        self.0.lock().later.is_served
    }

    /// Writes nothing in the background any more, and waits a while for what is being written to be given up.
    pub(crate) fn stop_writing(&self) {
        self.0.stop.cancel();
        let until = Instant::now() + PATIENCE;
        let mut state = self.0.lock();
        state.later.close();
        while state.later.is_served {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("a snapshot is still being materialised");
                return;
            }
            state = self.0.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A tree that is being written, until this is dropped.
struct Writing<'a> {
    layers: &'a Inner,
    key: Key,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.layers.lock();
        state.later.keys.remove(&self.key);
        if std::thread::panicking() {
            // The thread ends here. What waits is written when the next one is started.
            state.later.is_served = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use workspace_state::{CheckoutOptions, NewSnapshot, Store};

    use super::*;

    fn store(home: &Path) -> Store {
        Store::open_or_create(home.join("store")).unwrap()
    }

    fn snapshots(count: usize) -> (tempfile::TempDir, Vec<Snapshot>) {
        let home = tempfile::tempdir().unwrap();
        let store = store(home.path());
        let snapshot = |number: usize| {
            let mut tree = store.empty_tree().unwrap();
            tree.write("number", number.to_string()).unwrap();
            tree.commit(NewSnapshot::default()).unwrap()
        };
        let snapshots = (0..count).map(snapshot).collect();
        (home, snapshots)
    }

    #[test]
    fn one_thread_serves_owners_in_turns() {
        let (_home, all) = snapshots(2 * OWNER_MAX + 3);
        let mut queue = Queue::default();
        let started: Vec<bool> =
            all[..2 * OWNER_MAX].iter().map(|snapshot| queue.push("many", snapshot)).collect();
        assert_eq!(started.iter().filter(|started| **started).count(), 1);
        let (first, second) = (&all[2 * OWNER_MAX], &all[2 * OWNER_MAX + 1]);
        assert!(!queue.push("few", first) && !queue.push("few", second));
        let taken: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|snapshot| snapshot.id).collect();
        // Of the one with many, those beyond its bound were left out.
        let ids: Vec<_> = [&all[0], first, &all[1], second, &all[2], &all[3]].map(|one| one.id).into();
        assert_eq!(taken, ids);
        assert!(queue.push("few", all.last().unwrap()), "the thread is gone, so another is started");
        queue.close();
        assert!(queue.pop().is_none() && !queue.push("other", &all[0]));
    }

    #[test]
    fn a_tree_waits_once_and_owners_are_bounded() {
        let (_home, all) = snapshots(OWNERS_MAX + 1);
        let mut queue = Queue::default();
        assert!(queue.push("a", &all[0]));
        queue.push("b", &all[0]);
        assert_eq!(queue.owners.len(), 1);
        for (number, snapshot) in all.iter().enumerate().skip(1) {
            queue.push(&number.to_string(), snapshot);
        }
        assert_eq!((queue.owners.len(), queue.keys.len()), (OWNERS_MAX, OWNERS_MAX));
    }

    fn layers(home: &Path) -> Layers {
        Layers::open(&home.join("layers"), store(home), CheckoutOptions::default(), 0).unwrap()
    }

    #[test]
    fn all_that_wait_are_written() {
        let (home, all) = snapshots(2 * OWNER_MAX);
        let layers = layers(home.path());
        for (number, snapshot) in all.iter().enumerate() {
            layers.write_later(snapshot, if number % 2 == 0 { "even" } else { "odd" });
        }
        let until = Instant::now() + Duration::from_secs(60);
        while layers.is_writing() {
            assert!(Instant::now() < until, "they are still being written");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(all.iter().all(|snapshot| layers.find(snapshot).is_some()));
    }

    #[test]
    fn nothing_is_written_after_the_end() {
        let (home, all) = snapshots(OWNER_MAX + 1);
        let layers = layers(home.path());
        for snapshot in &all[..OWNER_MAX] {
            layers.write_later(snapshot, "a");
        }
        layers.stop_writing();
        assert!(!layers.is_writing());
        let last = &all[OWNER_MAX];
        layers.write_later(last, "a");
        assert!(!layers.is_writing() && layers.find(last).is_none());
    }
}
