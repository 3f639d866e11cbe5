//! Pins of a store: adding, listing and removing them.
//!
//! A pin protects the content of a snapshot from garbage collection. A mount or a workspace (a writable directory made
//! from a snapshot) pins the snapshots that it uses. A pin lasts until it is removed. A process pin also ends with its
//! process, which holds a lock on a file with the id of the pin.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::commit_options::Durability;
use crate::error::{IoContext, Result};
use crate::file_ops::remove_if_exists;
use crate::id::PinId;
use crate::log_record::Change;
use crate::pin::Pin;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// Pin that is removed when this value is dropped or its process dies.
pub struct ProcessPin {
    store: Store,
    id: PinId,
    /// Path of the locked file.
    path: PathBuf,
    _lock: File,
}

/// Lifetime of a pin, unless it is removed earlier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PinLifetime {
    UntilRemoved,
    /// Lifetime of its process.
    Process,
}

impl Store {
    /// Pins a snapshot: protects its content from garbage collection until the pin is removed. `holder` is a text that
    /// names the holder of the pin.
    pub fn pin(&self, snapshot: &Snapshot, holder: &str) -> Result<PinId> {
        self.pin_with(snapshot, holder, Durability::Synced)
    }

    /// Pins like [`Store::pin`], with the given durability. A buffered pin may be lost in a machine crash, so the
    /// caller must check after a crash if the pin still exists.
    pub fn pin_with(&self, snapshot: &Snapshot, holder: &str, durability: Durability) -> Result<PinId> {
        let id = PinId::generate();
        self.pin_as(id, snapshot, holder, durability)?;
        Ok(id)
    }

    /// Pins like [`Store::pin_with`], with an id from the caller. If the caller records the id before, it can remove
    /// the pin even after a crash.
    pub fn pin_as(&self, id: PinId, snapshot: &Snapshot, holder: &str, durability: Durability) -> Result<()> {
        self.put_pin(id, snapshot, holder, PinLifetime::UntilRemoved, durability)
    }

    /// Pins a snapshot until the returned value is dropped.
    pub fn pin_for_process(&self, snapshot: &Snapshot, holder: &str) -> Result<ProcessPin> {
        let id = PinId::generate();
        let path = self.pin_lock_path(id);
        let parent = self.path().join("pins");
        fs::create_dir_all(&parent).context("create", &parent)?;
        let lock = File::create_new(&path).context("create", &path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("lock", &path)?;
        self.put_pin(id, snapshot, holder, PinLifetime::Process, Durability::Buffered)?;
        Ok(ProcessPin { store: self.clone(), id, path, _lock: lock })
    }

    fn put_pin(
        &self,
        id: PinId,
        snapshot: &Snapshot,
        holder: &str,
        lifetime: PinLifetime,
        durability: Durability,
    ) -> Result<()> {
        let pin = Pin {
            id,
            snapshot: snapshot.id,
            tree: snapshot.tree,
            times: snapshot.times,
            holder: holder.to_owned(),
            ends_with_process: lifetime == PinLifetime::Process,
        };
        let change = Change::PutPin { id, record: pin.encode() };
        self.commit_changes(vec![change], durability)
    }

    /// Removes a pin. Does nothing if it does not exist.
    pub fn unpin(&self, id: PinId) -> Result<()> {
        self.commit_changes(vec![Change::RemovePin(id)], Durability::Buffered)
    }

    /// Returns all pins that can be decoded.
    pub fn pins(&self) -> Result<Vec<Pin>> {
        let txn = self.inner.index.read()?;
        let rows = self.inner.index.read_all_rows(&txn, &self.inner.index.pins)?;
        Ok(rows
            .into_iter()
            .filter_map(|(id, record)| Pin::decode(PinId::from_bytes(id.try_into().ok()?), &record).ok())
            .collect())
    }

    /// Removes the pins of processes that died.
    pub fn remove_dead_pins(&self) -> Result<()> {
        let mut changes = Vec::new();
        for pin in self.pins()?.into_iter().filter(|pin| pin.ends_with_process) {
            let path = self.pin_lock_path(pin.id);
            if !is_locked(&path)? {
                remove_if_exists(&path)?;
                changes.push(Change::RemovePin(pin.id));
            }
        }
        if changes.is_empty() { Ok(()) } else { self.commit_changes(changes, Durability::Buffered) }
    }

    fn pin_lock_path(&self, id: PinId) -> PathBuf {
        self.path().join("pins").join(id.to_string())
    }
}

/// Returns true if a process holds the lock on a file; false if there is no such file.
pub(crate) fn is_locked(path: &Path) -> Result<bool> {
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        file => Ok(flock(file.context("open", path)?, FlockOperation::NonBlockingLockExclusive).is_err()),
    }
}

impl Drop for ProcessPin {
    fn drop(&mut self) {
        // Errors are ignored: the lock is released, so the next garbage collection removes the pin.
        drop(self.store.unpin(self.id));
        drop(fs::remove_file(&self.path));
    }
}
