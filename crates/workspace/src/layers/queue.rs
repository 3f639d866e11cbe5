//! Queue of trees that are written in the background, for later workspaces. A tree is written as layers, the read-only
//! lower directories of overlays. The list of the layers of one tree is its stack (`layers.rs`).
//!
//! One thread writes one tree after the other, because several threads would only compete for the disk. The thread
//! exits when the queue is empty. The queues of owners (tenants) are served round robin. A tree that does not fit in
//! the queue is not written: the next workspace that needs the tree requests it again.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use workspace_state::Snapshot;

use super::{Inner, LayerSync, Layers, StackKey};

/// Maximum number of queued trees of one owner.
const TREES_PER_OWNER_MAX: usize = 4;
/// Maximum number of owners with queued trees.
const OWNERS_MAX: usize = 64;

/// Maximum time to wait until the background thread has stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Trees to be written, and the state of the thread that writes them.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Owners with their queued trees. The first owner is served next.
    owners: VecDeque<(String, VecDeque<Snapshot>)>,
    /// Keys of the queued trees, and of the tree that is being written.
    keys: HashSet<StackKey>,
    /// Set while there is a thread that writes the queued trees.
    is_running: bool,
    /// Set when background writes were stopped. Nothing is queued from then on.
    is_closed: bool,
}

impl Queue {
    /// Adds the tree of a snapshot, unless the tree is queued already or the queue is full. Returns true if the caller
    /// must start the thread, which counts as running from then on.
    fn push(&mut self, owner: &str, snapshot: &Snapshot) -> bool {
        let key = StackKey::of(snapshot);
        if self.is_closed || self.keys.contains(&key) || !self.add(owner, snapshot) {
            return false;
        }
        self.keys.insert(key);
        !std::mem::replace(&mut self.is_running, true)
    }

    /// Adds a tree to the queue of its owner. Returns false if that queue is full, or there are too many owners.
    fn add(&mut self, owner: &str, snapshot: &Snapshot) -> bool {
        let owner_count = self.owners.len();
        match self.owners.iter_mut().find(|(name, _)| name == owner) {
            Some((_, queued)) if queued.len() < TREES_PER_OWNER_MAX => queued.push_back(snapshot.clone()),
            None if owner_count < OWNERS_MAX => {
                self.owners.push_back((owner.to_owned(), VecDeque::from([snapshot.clone()])));
            }
            _ => return false,
        }
        true
    }

    /// Removes the next tree from the queue. Returns `None` if the queue is empty: the thread then counts as stopped,
    /// and must exit.
    fn pop(&mut self) -> Option<Snapshot> {
        let next = self.owners.pop_front().and_then(|(owner, mut queued)| {
            let next = queued.pop_front();
            if !queued.is_empty() {
                self.owners.push_back((owner, queued));
            }
            next
        });
        self.is_running = next.is_some();
        next
    }

    /// Removes all queued trees, and rejects later ones.
    fn close(&mut self) {
        self.is_closed = true;
        self.owners.clear();
    }
}

impl Layers {
    /// Writes the tree of a snapshot in the background, unless the tree has a stack. Does nothing if the queue is full.
    pub(crate) fn write_in_background(&self, snapshot: &Snapshot, owner: &str) {
        if !self.0.lock().queue.push(owner, snapshot) {
            return;
        }
        let layers = self.clone();
        let spawned =
            std::thread::Builder::new().name("materialise".to_owned()).spawn(move || layers.write_queued());
        if let Err(error) = spawned {
            tracing::warn!(%error, "failed to start the thread that materialises snapshots");
            // Discards the queued trees, because there is no thread to write them. The drop removes the key of a tree.
            while let Some(snapshot) = self.next_queued() {
                drop(TreeInProgress { layers: &self.0, key: StackKey::of(&snapshot) });
            }
        }
    }

    /// Writes the queued trees, until the queue is empty.
    fn write_queued(&self) {
        let store = self.0.store.with_cancel(self.0.stop.clone());
        while let Some(snapshot) = self.next_queued() {
            let _in_progress = TreeInProgress { layers: &self.0, key: StackKey::of(&snapshot) };
            match self.find_or_write(&store, &snapshot, LayerSync::Synced) {
                Ok(_) => {}
                Err(error) if error.is_cancelled() => {}
                Err(error) => {
                    tracing::warn!(snapshot = %snapshot.id, %error, "failed to materialise snapshot");
                }
            }
        }
    }

    /// Removes the next tree from the queue, and wakes [`Layers::stop_writing`], which waits for the end of the thread.
    fn next_queued(&self) -> Option<Snapshot> {
        let next = self.0.lock().queue.pop();
        self.0.changed.notify_all();
        next
    }

    /// Returns true while layers are being written in the background.
    pub(crate) fn is_writing(&self) -> bool {
        self.0.lock().queue.is_running
    }

    /// Stops background writes for good. Waits up to [`STOP_TIMEOUT`] until the current write is aborted.
    pub(crate) fn stop_writing(&self) {
        self.0.stop.cancel();
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut state = self.0.lock();
        state.queue.close();
        while state.queue.is_running {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                tracing::warn!("timed out waiting for the materialising thread to stop");
                return;
            }
            self.0.changed.wait_for(&mut state, remaining);
        }
    }
}

/// Guard of a tree that is being written. Drop removes the key from the queue, so that the tree can be queued again.
struct TreeInProgress<'a> {
    layers: &'a Inner,
    key: StackKey,
}

impl Drop for TreeInProgress<'_> {
    fn drop(&mut self) {
        let mut state = self.layers.lock();
        state.queue.keys.remove(&self.key);
        if std::thread::panicking() {
            // The thread exits. The next queued tree starts another thread, which writes the rest of the queue, too.
            state.queue.is_running = false;
            self.layers.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use workspace_state::{CheckoutOptions, NewSnapshot, Store};

    use super::*;
    use crate::part::SnapshotPart;

    fn open_store(home: &Path) -> Store {
        Store::open_or_create(home.join("store")).unwrap()
    }

    /// Creates a store with snapshots of different trees. The store is removed when the directory is dropped.
    fn snapshots(count: usize) -> (tempfile::TempDir, Vec<Snapshot>) {
        let home = tempfile::tempdir().unwrap();
        let store = open_store(home.path());
        let snapshot = |number: usize| {
            let mut tree = store.empty_tree().unwrap();
            tree.write("number", number.to_string()).unwrap();
            tree.commit(NewSnapshot::default()).unwrap()
        };
        let snapshots = (0..count).map(snapshot).collect();
        (home, snapshots)
    }

    #[test]
    fn one_thread_serves_owners_round_robin() {
        let (_home, all) = snapshots(2 * TREES_PER_OWNER_MAX + 3);
        let mut queue = Queue::default();
        let started: Vec<bool> =
            all[..2 * TREES_PER_OWNER_MAX].iter().map(|snapshot| queue.push("many", snapshot)).collect();
        assert_eq!(started.iter().filter(|started| **started).count(), 1);
        let (first, second) = (&all[2 * TREES_PER_OWNER_MAX], &all[2 * TREES_PER_OWNER_MAX + 1]);
        assert!(!queue.push("few", first) && !queue.push("few", second));
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|snapshot| snapshot.id).collect();
        // Trees beyond the limit of an owner are ignored.
        let ids: Vec<_> =
            [&all[0], first, &all[1], second, &all[2], &all[3]].map(|snapshot| snapshot.id).into();
        assert_eq!(popped, ids);
        assert!(queue.push("few", all.last().unwrap()), "the caller must start another thread");
        queue.close();
        assert!(queue.pop().is_none() && !queue.push("other", &all[0]));
    }

    #[test]
    fn a_tree_is_queued_once_and_the_number_of_owners_is_limited() {
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

    fn open_layers(home: &Path) -> Layers {
        let store = (open_store(home), SnapshotPart::Workspace);
        let reserve = 0;
        Layers::open(&home.join("layers"), store, CheckoutOptions::default(), reserve).unwrap()
    }

    #[test]
    fn all_queued_trees_are_written() {
        let (home, all) = snapshots(2 * TREES_PER_OWNER_MAX);
        let layers = open_layers(home.path());
        for (number, snapshot) in all.iter().enumerate() {
            layers.write_in_background(snapshot, if number % 2 == 0 { "even" } else { "odd" });
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while layers.is_writing() {
            assert!(Instant::now() < deadline, "trees are still being written");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(all.iter().all(|snapshot| layers.find(snapshot).is_some()));
    }

    #[test]
    fn nothing_is_written_after_stopping() {
        let (home, all) = snapshots(TREES_PER_OWNER_MAX + 1);
        let layers = open_layers(home.path());
        for snapshot in &all[..TREES_PER_OWNER_MAX] {
            layers.write_in_background(snapshot, "a");
        }
        layers.stop_writing();
        assert!(!layers.is_writing());
        let last = &all[TREES_PER_OWNER_MAX];
        layers.write_in_background(last, "a");
        assert!(!layers.is_writing() && layers.find(last).is_none());
    }
}
