//! Pending snapshots: snapshots that their process must still record elsewhere, such as in a database.
//!
//! The commit of a pending snapshot also adds a pin, a record that keeps the content of the snapshot and here also
//! names the process. When the snapshot is recorded, the process removes the pin. If the snapshot cannot be recorded,
//! the process removes the pin and the snapshot. If the process ends before that, the snapshot is *abandoned*: another
//! process finds the snapshot by the pin, and finds out if it was recorded.
//!
//! A process counts as alive as long as it holds the lock on its file in `pins/`, even while it is suspended. So there
//! are no timeouts, and a snapshot of a living process is abandoned only on request.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::commit_options::{Durability, Expect};
use crate::error::{IoContext, Result, StoreError};
use crate::file_ops::remove_if_exists;
use crate::id::{PinId, SnapshotId};
use crate::log_record::Change;
use crate::pin::Pin;
use crate::pin_store::is_locked;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// Name of a label of pending snapshots. Its value is the id of a workspace (a writable directory made from a snapshot)
/// with an operation that may need the snapshot after an interruption.
pub const WORKSPACE_LABEL: &str = "workspace";

/// Beginning of [`Pin::holder`] in the pin of a pending snapshot. The id of the process follows: a UUID, not its PID.
const HOLDER_PREFIX: &str = "snapshot that is not recorded yet, of process ";
/// Text in place of the id of the process in the pin of a snapshot that was abandoned on request.
const NO_PROCESS: &str = "none";
/// End of the name of the lock file of a process. The id of the process is before it.
const LOCK_SUFFIX: &str = ".process";

/// Lock that shows other processes that this process has a store open. Taken for the first pending snapshot.
#[derive(Default)]
pub(crate) struct ProcessLock {
    held: Mutex<Option<HeldLock>>,
    /// Held while this process abandons pending snapshots or ends their pending state, so that one of these does not
    /// undo the other.
    transition: Mutex<()>,
}

struct HeldLock {
    /// Id of this process, generated for this lock.
    process: PinId,
    path: PathBuf,
    file: File,
}

impl ProcessLock {
    /// Excludes other threads that abandon pending snapshots or end their pending state.
    fn lock_transition(&self) -> MutexGuard<'_, ()> {
        self.transition.lock()
    }

    /// Returns the id of this process. Takes the lock in `directory` first if it is not held yet.
    fn process(&self, directory: &Path) -> Result<PinId> {
        let mut held = self.held.lock();
        if let Some(held) = &*held {
            return Ok(held.process);
        }
        Ok(held.insert(HeldLock::take(directory)?).process)
    }
}

impl HeldLock {
    fn take(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).context("create", directory)?;
        loop {
            let process = PinId::generate();
            let path = directory.join(format!("{process}{LOCK_SUFFIX}"));
            let file = File::create_new(&path).context("create", &path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if file.metadata().context("stat", &path)?.nlink() > 0 => {
                    return Ok(Self { process, path, file });
                }
                // Another process found the file before it was locked, and removes it as the file of an ended process.
                Ok(()) | Err(Errno::WOULDBLOCK) => {}
                locked => locked.context("lock", &path)?,
            }
        }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // On failure, another process removes the file when it looks for abandoned snapshots.
        drop(fs::remove_file(&self.path));
        // Unlocked explicitly, because a child process that another thread is just forking has the file until it calls
        // `exec`.
        flock(&self.file, FlockOperation::Unlock).unwrap_or(());
    }
}

impl Store {
    /// Returns the abandoned snapshots, except those that have another pin. Their process may have recorded them
    /// before it ended, so find out: pass recorded snapshots to [`Store::end_pending`], and the others to
    /// [`Store::remove_snapshots`].
    pub fn abandoned_snapshots(&self) -> Result<Vec<SnapshotId>> {
        let directory = self.path().join("pins");
        let (mut abandoned, mut pinned, mut processes) = (Vec::new(), HashSet::new(), HashMap::new());
        for pin in self.pins()? {
            let Some(process) = pin.holder.strip_prefix(HOLDER_PREFIX) else {
                pinned.insert(pin.snapshot);
                continue;
            };
            let is_alive = match processes.get(process) {
                Some(is_alive) => *is_alive,
                None => {
                    let is_alive = is_locked(&directory.join(format!("{process}{LOCK_SUFFIX}")))?;
                    processes.insert(process.to_owned(), is_alive);
                    is_alive
                }
            };
            if !is_alive {
                abandoned.push(pin.snapshot);
            }
        }
        remove_unlocked_files(&directory)?;
        abandoned.retain(|snapshot| !pinned.contains(snapshot));
        Ok(abandoned)
    }

    /// Ends the pending state of snapshots, because they are recorded now. Ignores snapshots that are not pending.
    pub fn end_pending(&self, ids: &[SnapshotId]) -> Result<()> {
        let changes = self.changes_to_end_pending(ids)?;
        // If a crash of the machine undoes this commit, the snapshots are abandoned. The caller of
        // `abandoned_snapshots` then finds that they are recorded.
        if changes.is_empty() { Ok(()) } else { self.commit_changes(changes, Durability::Buffered) }
    }

    /// Ends the pending state of snapshots of this process, because they are recorded now. Ignores snapshots that are
    /// not pending, or that were abandoned meanwhile ([`Store::abandon_snapshots`], [`Store::abandon_reference`]).
    pub fn end_own_pending(&self, ids: &[SnapshotId]) -> Result<()> {
        let _transition_lock = self.inner.process_lock.lock_transition();
        let mut own = Vec::new();
        {
            let txn = self.inner.index.read()?;
            for id in ids {
                let Some(record) = self.inner.index.pins.get(&txn, pin_of(id).as_bytes())? else { continue };
                let is_abandoned = Pin::decode(pin_of(id), record)
                    .is_ok_and(|pin| pin.holder.strip_prefix(HOLDER_PREFIX) == Some(NO_PROCESS));
                if !is_abandoned {
                    own.push(*id);
                }
            }
        }
        self.end_pending(&own)
    }

    /// Removes a reference (a name of a snapshot), and abandons the snapshot to which it points:
    /// [`Store::abandoned_snapshots`] returns this snapshot from then on. Does nothing if there is no such reference.
    pub fn abandon_reference(&self, name: &str) -> Result<()> {
        let _transition_lock = self.inner.process_lock.lock_transition();
        while let Some(id) = self.reference(name)? {
            let mut changes = vec![Change::RemoveReference { name: name.to_owned(), expect: Expect::At(id) }];
            changes.extend(self.find_snapshot(&id)?.map(|snapshot| put_pin(&snapshot, NO_PROCESS)));
            // On a full disk, removals use disk space that is reserved for them (`reserve.rs`).
            match self.retry_with_disk_reserve(|| self.commit_changes(changes.clone(), Durability::Synced)) {
                // Another process has removed or changed the reference meanwhile.
                Err(StoreError::ReferenceMoved { .. }) => {}
                committed => return committed,
            }
        }
        Ok(())
    }

    /// Abandons snapshots: [`Store::abandoned_snapshots`] returns them from then on. Ignores ids that do not exist.
    pub fn abandon_snapshots(&self, ids: &[SnapshotId]) -> Result<()> {
        let _transition_lock = self.inner.process_lock.lock_transition();
        let mut changes = Vec::new();
        for id in ids {
            changes.extend(self.find_snapshot(id)?.map(|snapshot| put_pin(&snapshot, NO_PROCESS)));
        }
        if changes.is_empty() { Ok(()) } else { self.commit_changes(changes, Durability::Buffered) }
    }

    /// Returns the changes that end the pending state of snapshots, by removing their pins. Ignores snapshots that are
    /// not pending.
    pub(crate) fn changes_to_end_pending(&self, ids: &[SnapshotId]) -> Result<Vec<Change>> {
        let txn = self.inner.index.read()?;
        let mut changes = Vec::new();
        for pin in ids.iter().map(pin_of) {
            if self.inner.index.pins.get(&txn, pin.as_bytes())?.is_some() {
                changes.push(Change::RemovePin(pin));
            }
        }
        Ok(changes)
    }

    /// Returns the change that makes a new snapshot pending.
    pub(crate) fn pending_pin(&self, snapshot: &Snapshot) -> Result<Change> {
        let process = self.inner.process_lock.process(&self.path().join("pins"))?;
        Ok(put_pin(snapshot, &process.to_string()))
    }
}

/// Returns the change that adds or replaces the pin of a pending snapshot.
fn put_pin(snapshot: &Snapshot, process: &str) -> Change {
    let pin = Pin {
        id: pin_of(&snapshot.id),
        snapshot: snapshot.id,
        tree: snapshot.tree,
        times: snapshot.times,
        holder: format!("{HOLDER_PREFIX}{process}"),
        ends_with_process: false,
    };
    Change::PutPin { id: pin.id, record: pin.encode() }
}

/// Returns the id of the pin of a pending snapshot: the bytes of the id of the snapshot.
fn pin_of(snapshot: &SnapshotId) -> PinId {
    PinId::from_bytes(*snapshot.as_bytes())
}

/// Removes the lock files of processes that ended.
fn remove_unlocked_files(directory: &Path) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.context("list", directory)?,
    };
    for entry in entries {
        let path = entry.context("list", directory)?.path();
        if path.to_str().is_some_and(|path| path.ends_with(LOCK_SUFFIX)) {
            remove_if_unlocked(&path)?;
        }
    }
    Ok(())
}

/// Removes a lock file if its process has ended. Holds the lock on the file meanwhile. Otherwise a process that has
/// just created the file could lock it before it is removed, and would not count as alive.
fn remove_if_unlocked(path: &Path) -> Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file.context("open", path)?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => remove_if_exists(path),
        Err(Errno::WOULDBLOCK) => Ok(()),
        Err(error) => Err(error).context("lock", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_options::NewSnapshot;
    use crate::gc::GcOptions;
    use crate::progress::NoProgress;

    struct Fixture {
        home: tempfile::TempDir,
        store: Store,
    }

    impl Fixture {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let store = Store::open_or_create(home.path().join("store")).unwrap();
            Self { home, store }
        }

        fn commit(&self, content: &str) -> SnapshotId {
            let mut tree = self.store.empty_tree().unwrap();
            tree.write("file", content).unwrap();
            tree.commit(NewSnapshot { pending: true, ..NewSnapshot::default() }).unwrap().id
        }

        /// Closes the store, as the end of the process does, and opens it again.
        fn reopen(self) -> Self {
            let Self { home, store } = self;
            drop(store);
            let store = Store::open_or_create(home.path().join("store")).unwrap();
            Self { home, store }
        }

        fn lock_files(&self) -> usize {
            fs::read_dir(self.store.path().join("pins")).map(Iterator::count).unwrap_or_default()
        }
    }

    #[test]
    fn an_abandoned_snapshot_stays_abandoned_when_its_process_ends_its_pending_state() {
        let fixture = Fixture::new();
        let [recorded, abandoned] = ["a", "b"].map(|content| fixture.commit(content));
        fixture.store.abandon_snapshots(&[abandoned]).unwrap();
        fixture.store.end_own_pending(&[recorded, abandoned]).unwrap();
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [abandoned]);
        assert_eq!(fixture.store.pins().unwrap().len(), 1);
    }

    #[test]
    fn a_snapshot_is_abandoned_when_its_process_ends_before_it_is_recorded() {
        let fixture = Fixture::new();
        let [recorded, removed, unrecorded] = ["a", "b", "c"].map(|content| fixture.commit(content));
        fixture.store.end_pending(&[recorded]).unwrap();
        fixture.store.remove_snapshots(&[removed]).unwrap();
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [], "its process is alive");
        assert_eq!((fixture.store.pins().unwrap().len(), fixture.lock_files()), (1, 1));

        let fixture = fixture.reopen();
        let later = fixture.commit("d");
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [unrecorded]);
        // Garbage collection does not affect an abandoned snapshot.
        fixture.store.collect_garbage(&GcOptions::default(), &NoProgress).unwrap();
        fixture.store.remove_snapshots(&[unrecorded]).unwrap();
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), []);
        fixture.store.end_pending(&[later, unrecorded, removed]).unwrap();
        assert_eq!(fixture.store.pins().unwrap(), []);
        let kept: Vec<SnapshotId> = fixture.store.snapshots().unwrap().iter().map(|one| one.id).collect();
        assert_eq!(kept, [recorded, later]);
        assert_eq!(fixture.lock_files(), 1, "only that of the living process is left");
    }

    #[test]
    fn an_abandoned_snapshot_that_another_pin_or_reference_holds_is_kept() {
        let fixture = Fixture::new();
        let [pinned, named] = ["a", "b"].map(|content| fixture.commit(content));
        let pin = fixture.store.pin(&fixture.store.snapshot(&pinned).unwrap(), "a workspace").unwrap();
        fixture.store.set_reference("main", Expect::Absent, named, Durability::Buffered).unwrap();
        let fixture = fixture.reopen();
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [named]);
        fixture.store.remove_snapshots(&[named]).unwrap_err();
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [named]);
        fixture.store.remove_reference_with_snapshot("main", named).unwrap();
        fixture.store.unpin(pin).unwrap();
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [pinned]);
    }

    #[test]
    fn a_snapshot_is_abandoned_with_its_reference() {
        let fixture = Fixture::new();
        let [one, other] = ["a", "b"].map(|content| fixture.commit(content));
        fixture.store.end_pending(&[one, other]).unwrap();
        for (name, id) in [("a", one), ("b", other), ("c", other)] {
            fixture.store.set_reference(name, Expect::Absent, id, Durability::Buffered).unwrap();
        }
        fixture.store.abandon_snapshots(&[other, SnapshotId::generate()]).unwrap();
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [other]);
        for name in ["a", "b", "b", "missing"] {
            fixture.store.abandon_reference(name).unwrap();
        }
        assert_eq!(fixture.store.abandoned_snapshots().unwrap(), [one, other]);
        fixture.store.remove_snapshots(&[one]).unwrap();
        fixture.store.remove_snapshots(&[other]).unwrap_err();
        assert_eq!(fixture.store.references().unwrap(), [("c".to_owned(), other)]);
    }

    #[test]
    fn a_reference_can_be_abandoned_by_several_threads_at_once() {
        let fixture = Fixture::new();
        for attempt in 0..20 {
            let id = fixture.commit(&format!("{attempt}"));
            fixture.store.set_reference("main", Expect::Absent, id, Durability::Buffered).unwrap();
            std::thread::scope(|scope| {
                let abandon = || scope.spawn(|| fixture.store.abandon_reference("main"));
                for thread in [abandon(), abandon(), abandon()] {
                    thread.join().unwrap().unwrap();
                }
            });
            assert_eq!(fixture.store.reference("main").unwrap(), None);
            assert!(fixture.store.abandoned_snapshots().unwrap().contains(&id));
        }
    }

    #[test]
    fn the_lock_file_of_a_living_process_is_never_removed() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("pins");
        fs::create_dir(&directory).unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                        remove_unlocked_files(&directory).unwrap();
                    }
                });
            }
            for _ in 0..2000 {
                let held = HeldLock::take(&directory).unwrap();
                remove_unlocked_files(&directory).unwrap();
                assert!(held.path.exists(), "the file of a living process was removed");
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn an_abandoned_snapshot_is_known_after_the_index_was_rebuilt() {
        let fixture = Fixture::new();
        let unrecorded = fixture.commit("a");
        let Fixture { home, store } = fixture;
        drop(store);
        fs::remove_dir_all(home.path().join("store/index")).unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        assert_eq!(store.abandoned_snapshots().unwrap(), [unrecorded]);
    }
}
