//! Tracked directories: directories of the file system for which the store has state.
//!
//! The *checkout state* is a JSON file in the store: the tree that was last checked out into the directory or
//! snapshotted from it, and an unfinished checkout. The *stat records*, in the index of the store, have the
//! fingerprints of the files (`stat_index.rs`).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, fstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Result as StoreResult;
use crate::id::{NodeId, SnapshotId, TreeId};
use crate::platform::DIRECTORY_HANDLE_FLAGS;
use crate::record::Kind;
use crate::snapshot::Snapshot;
use crate::store::Store;

use super::error::{Context, Result};
use super::path::open_with_owner_access;
use super::read::DirectoryReader;
use super::stat_index::{StatRecord, key};

/// Flags that open a tracked directory itself.
const OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Directory for which the store has, or will have, state. Identified by its canonical path.
pub(super) struct TrackedDirectory<'s> {
    pub(super) store: &'s Store,
    /// Hash of the path: prefix of the keys of the stat records, and name of the state file.
    pub(super) id: [u8; 16],
    /// Canonical path.
    pub(super) path: PathBuf,
}

/// Checkout state of a directory, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckoutState {
    /// Path of the directory, for people who inspect the store.
    pub(super) path: String,
    /// Inode of the directory, to detect that another directory has its path now. The device number is not recorded,
    /// because it changes with every mount of some file systems.
    #[serde(default)]
    pub(super) inode: Option<u64>,
    /// Tree of the directory and its times; `None` if the directory held no known tree before an unfinished checkout.
    pub(super) tree: Option<(TreeId, NodeId)>,
    /// Snapshot of `tree`; `None` if an older version recorded the state, or the snapshot is not known.
    #[serde(default)]
    pub(super) snapshot: Option<SnapshotId>,
    /// Target tree of an unfinished checkout and its times; `None` if the last checkout was finished. During a
    /// checkout, the directory may have entries of both trees.
    #[serde(rename = "towards")]
    pub(super) unfinished_target: Option<(TreeId, NodeId)>,
    /// Ids of unfinished checkouts. The names of their temporary files contain these ids, see `temporary_files.rs`.
    #[serde(default, rename = "marks")]
    pub(super) checkout_ids: Vec<String>,
}

/// Tree that a directory holds according to its checkout state.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedOutTree {
    pub(super) tree: TreeId,
    pub(super) times: NodeId,
    /// Snapshot of the tree; `None` if it is not known.
    pub(super) snapshot: Option<SnapshotId>,
}

impl CheckedOutTree {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self { tree: snapshot.tree, times: snapshot.times, snapshot: Some(snapshot.id) }
    }
}

impl CheckoutState {
    /// Returns the tree of the directory.
    pub(super) fn checked_out_tree(&self) -> Option<CheckedOutTree> {
        let (tree, times) = self.tree?;
        Some(CheckedOutTree { tree, times, snapshot: self.snapshot })
    }
}

impl<'s> TrackedDirectory<'s> {
    /// Resolves the path of a directory, which must exist. Does not read its state.
    pub(super) fn of(store: &'s Store, directory: &Path) -> Result<Self> {
        let path = std::fs::canonicalize(directory).context("find", directory)?;
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(path.as_os_str().as_bytes()).as_bytes()[..16]);
        Ok(Self { store, id, path })
    }

    /// Opens the directory itself.
    pub(super) fn open(&self) -> Result<OwnedFd> {
        rustix::fs::open(&self.path, OPEN_FLAGS, Mode::empty()).context("open", &self.path)
    }

    /// Opens the directory itself, through `reader` if its mode denies access.
    pub(super) fn open_for(&self, reader: &dyn DirectoryReader) -> Result<OwnedFd> {
        let opened = rustix::fs::open(&self.path, OPEN_FLAGS, Mode::empty());
        let (Err(Errno::ACCESS), Some(parent), Some(name)) =
            (&opened, self.path.parent(), self.path.file_name())
        else {
            return opened.context("open", &self.path);
        };
        let flags = DIRECTORY_HANDLE_FLAGS | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty()).context("open", parent)?;
        reader.open_directory(parent.as_fd(), name.as_bytes()).context("open", &self.path)
    }

    /// Opens the directory for changes. If its mode denies access to its owner, adds the missing bits and returns the
    /// former mode, which the caller must restore.
    pub(super) fn open_with_owner_access(&self) -> Result<(OwnedFd, Option<Mode>)> {
        let opened = rustix::fs::open(&self.path, OPEN_FLAGS, Mode::empty());
        let (Err(Errno::ACCESS), Some(parent), Some(name)) =
            (&opened, self.path.parent(), self.path.file_name())
        else {
            return Ok((opened.context("open", &self.path)?, None));
        };
        let flags = DIRECTORY_HANDLE_FLAGS | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty()).context("open", parent)?;
        let (root, mode) =
            open_with_owner_access(parent, name.as_bytes(), Access::READ_OK).context("open", &self.path)?;
        Ok((root, mode))
    }

    /// Returns the path of the file with the checkout state.
    fn state_file(&self) -> PathBuf {
        let name: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        self.store.path().join("directories").join(name)
    }

    /// Returns the checkout state of the directory, which is open as `root`; `None` if there is none, or if one of its
    /// trees is no longer in the store.
    pub(super) fn checkout_state(&self, root: &OwnedFd) -> Result<Option<CheckoutState>> {
        let Some(checkout_state) = self.recorded_state(root)? else { return Ok(None) };
        let index = &self.store.inner.index;
        let txn = index.read()?;
        for (tree, times) in checkout_state.tree.iter().chain(&checkout_state.unfinished_target) {
            let is_live =
                |id: &[u8; 32]| -> StoreResult<bool> { Ok(index.find_live(&txn, Kind::Node, id)?.is_some()) };
            if !is_live(tree.as_bytes())? || !is_live(times.as_bytes())? {
                return Ok(None);
            }
        }
        Ok(Some(checkout_state))
    }

    /// Returns the ids of unfinished checkouts, which may have left temporary files in the directory. Their trees may
    /// no longer be in the store.
    pub(super) fn unfinished_checkouts(&self, root: &OwnedFd) -> Result<Vec<String>> {
        Ok(self.recorded_state(root)?.map(|checkout_state| checkout_state.checkout_ids).unwrap_or_default())
    }

    /// Returns the recorded checkout state, even if its trees are no longer in the store. Returns `None` if there is
    /// none, if it cannot be decoded, or if it belongs to a former directory at the same path.
    pub(super) fn recorded_state(&self, root: &OwnedFd) -> Result<Option<CheckoutState>> {
        let file = self.state_file();
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // A state that cannot be read must not be treated as missing.
            Err(error) => return Err(error).context("read", &file),
        };
        let Ok(checkout_state) = serde_json::from_slice::<CheckoutState>(&text) else { return Ok(None) };
        let is_other = checkout_state.inode.is_some() && checkout_state.inode != Some(self.inode(root)?);
        Ok((!is_other).then_some(checkout_state))
    }

    /// Returns the inode number of the directory.
    fn inode(&self, root: &OwnedFd) -> Result<u64> {
        Ok(fstat(root).context("stat", &self.path)?.st_ino)
    }

    /// Records the checkout state of the directory, which is open as `root`: its tree, and the target of an unfinished
    /// checkout. Replaces the state file atomically, but does not sync it. The next snapshot of the directory records a
    /// lost state again.
    pub(super) fn set_checkout_state(
        &self,
        root: &OwnedFd,
        tree: Option<CheckedOutTree>,
        unfinished_target: Option<(TreeId, NodeId)>,
        checkout_ids: Vec<String>,
    ) -> Result<()> {
        let inode = Some(self.inode(root)?);
        let checkout_state = CheckoutState {
            path: self.path.to_string_lossy().into_owned(),
            inode,
            tree: tree.map(|tree| (tree.tree, tree.times)),
            snapshot: tree.and_then(|tree| tree.snapshot),
            unfinished_target,
            checkout_ids,
        };
        let path = self.state_file();
        let new = path.with_extension(format!("{}", std::process::id()));
        let text = serde_json::to_vec(&checkout_state).unwrap_or_default();
        std::fs::write(&new, text).context("write", &new)?;
        std::fs::rename(&new, &path).context("rename", &new)
    }

    /// Restores a former checkout state; `None` removes the state. Keeps the ids of unfinished checkouts.
    pub(super) fn restore_state(&self, root: &OwnedFd, before: Option<CheckoutState>) -> Result<()> {
        let checkout_ids = self.unfinished_checkouts(root)?;
        match before {
            Some(before) => self.set_checkout_state(
                root,
                before.checked_out_tree(),
                before.unfinished_target,
                checkout_ids,
            ),
            // Unfinished checkouts may have left temporary files, which the next checkout removes by these ids.
            None if !checkout_ids.is_empty() => self.set_checkout_state(root, None, None, checkout_ids),
            None => match std::fs::remove_file(self.state_file()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.context("remove", &self.state_file()),
            },
        }
    }

    /// Removes all stat records if their tree, the tree in the record of the root, is no longer in the store. Returns
    /// true if there are usable records.
    pub(super) fn drop_stale_records(&self) -> StoreResult<bool> {
        let usable = match self.stat_record(b"")? {
            Some(root) => {
                let index = &self.store.inner.index;
                let txn = index.read()?;
                index.find_live(&txn, Kind::Node, root.node.as_bytes())?.is_some()
                    && index.find_live(&txn, Kind::Node, root.times_node.as_bytes())?.is_some()
            }
            None => false,
        };
        if !usable {
            self.remove_stat_records()?;
        }
        Ok(usable)
    }

    /// Returns the stat record of the directory at `path`, relative to the tracked directory; `None` if there is none,
    /// or if it cannot be decoded.
    pub(super) fn stat_record(&self, path: &[u8]) -> StoreResult<Option<StatRecord>> {
        let index = &self.store.inner.index;
        let txn = index.read()?;
        let bytes = index.stats.get(&txn, &key(&self.id, path))?;
        // Without a record, the files are read again.
        Ok(bytes.and_then(|bytes| StatRecord::decode(bytes).ok()))
    }

    /// Writes stat records by path; `None` removes a record.
    pub(super) fn update_stat_records(&self, changed: &[(Vec<u8>, Option<StatRecord>)]) -> StoreResult<()> {
        if changed.is_empty() {
            return Ok(());
        }
        self.store.inner.mark_index_dirty()?;
        let mut rows: Vec<([u8; 32], Option<Vec<u8>>)> = changed
            .iter()
            .map(|(path, record)| (key(&self.id, path), record.as_ref().map(StatRecord::encode)))
            .collect();
        rows.sort_unstable();
        let index = &self.store.inner.index;
        let mut txn = index.write()?;
        for (key, row) in rows {
            match row {
                Some(row) => index.stats.put(&mut txn, &key, &row)?,
                None => drop(index.stats.delete(&mut txn, &key)?),
            }
        }
        index.commit(txn)
    }

    /// Removes all stat records of the directory.
    fn remove_stat_records(&self) -> StoreResult<()> {
        let index = &self.store.inner.index;
        let is_empty = {
            let txn = index.read()?;
            index.stats.prefix_iter(&txn, &self.id)?.next().is_none()
        };
        if is_empty {
            return Ok(());
        }
        self.store.inner.mark_index_dirty()?;
        let mut txn = index.write()?;
        let keys: Vec<Vec<u8>> = index
            .stats
            .prefix_iter(&txn, &self.id)?
            .map(|row| row.map(|(key, _)| key.to_vec()))
            .collect::<Result<_, _>>()?;
        for key in keys {
            index.stats.delete(&mut txn, &key)?;
        }
        index.commit(txn)
    }
}
