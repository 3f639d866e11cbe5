//! Directories that the store has state for: the tree that was checked out or snapshotted there, and the stat
//! records of its entries.

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

const OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory that the store has state for, by its canonical path.
pub(super) struct TrackedDirectory<'s> {
    pub(super) store: &'s Store,
    /// Hash of the path: prefix of the keys of its stat records, and name of its state file.
    pub(super) id: [u8; 16],
    pub(super) path: PathBuf,
}

/// Recorded state of a checkout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckoutState {
    /// Path of the directory, for people who inspect the store.
    pub(super) path: String,
    /// Inode of the directory, to detect that another one has its path. Not the device, which some file
    /// systems number differently after every mount.
    #[serde(default)]
    pub(super) inode: Option<u64>,
    /// Tree and times; `None` for a directory that was empty.
    pub(super) tree: Option<(TreeId, NodeId)>,
    /// Snapshot of `tree`; `None` if an older version recorded the state, or the snapshot is not known.
    #[serde(default)]
    pub(super) snapshot: Option<SnapshotId>,
    /// Target of an unfinished checkout. Files of both trees may exist.
    #[serde(rename = "towards")]
    pub(super) unfinished_target: Option<(TreeId, NodeId)>,
    /// Ids of unfinished checkouts, which the names of their temporary files contain: see `temporary_files.rs`.
    #[serde(default, rename = "marks")]
    pub(super) checkout_ids: Vec<String>,
}

/// Tree that a directory holds.
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
    pub(super) fn checked_out_tree(&self) -> Option<CheckedOutTree> {
        let (tree, times) = self.tree?;
        Some(CheckedOutTree { tree, times, snapshot: self.snapshot })
    }
}

impl<'s> TrackedDirectory<'s> {
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

    /// Opens the directory itself; through `reader` if its mode denies access.
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

    /// Opens the directory for changes. If its mode denies access to its owner, the missing bits are added
    /// and the former mode is returned.
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

    fn state_file(&self) -> PathBuf {
        let name: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        self.store.path().join("directories").join(name)
    }

    /// Returns the state of the directory, open as `root`, if its content is still in the store.
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

    /// Returns the ids of checkouts that may have left files in the directory, even if their trees are no
    /// longer in the store.
    pub(super) fn unfinished_checkouts(&self, root: &OwnedFd) -> Result<Vec<String>> {
        Ok(self.recorded_state(root)?.map(|checkout_state| checkout_state.checkout_ids).unwrap_or_default())
    }

    /// Returns the recorded state, unless it is of another directory at the same path.
    pub(super) fn recorded_state(&self, root: &OwnedFd) -> Result<Option<CheckoutState>> {
        let file = self.state_file();
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // An unreadable state must not be mistaken for a missing one.
            Err(error) => return Err(error).context("read", &file),
        };
        let Ok(checkout_state) = serde_json::from_slice::<CheckoutState>(&text) else { return Ok(None) };
        let is_other = checkout_state.inode.is_some() && checkout_state.inode != Some(self.inode(root)?);
        Ok((!is_other).then_some(checkout_state))
    }

    fn inode(&self, root: &OwnedFd) -> Result<u64> {
        Ok(fstat(root).context("stat", &self.path)?.st_ino)
    }

    /// Records the state of the directory, open as `root`: its tree, and the target of a checkout in
    /// progress. Replaced atomically; not synced, because it can be recovered by reading the files.
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
            tree: tree.map(|content| (content.tree, content.times)),
            snapshot: tree.and_then(|content| content.snapshot),
            unfinished_target,
            checkout_ids,
        };
        let path = self.state_file();
        let new = path.with_extension(format!("{}", std::process::id()));
        let text = serde_json::to_vec(&checkout_state).unwrap_or_default();
        std::fs::write(&new, text).context("write", &new)?;
        std::fs::rename(&new, &path).context("rename", &new)
    }

    /// Restores a former state, or removes it. The ids of unfinished checkouts are kept.
    pub(super) fn restore_state(&self, root: &OwnedFd, before: Option<CheckoutState>) -> Result<()> {
        let checkout_ids = self.unfinished_checkouts(root)?;
        match before {
            Some(before) => self.set_checkout_state(
                root,
                before.checked_out_tree(),
                before.unfinished_target,
                checkout_ids,
            ),
            // Temporary files of such checkouts may exist; the next one removes them.
            None if !checkout_ids.is_empty() => self.set_checkout_state(root, None, None, checkout_ids),
            None => match std::fs::remove_file(self.state_file()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.context("remove", &self.state_file()),
            },
        }
    }

    /// Removes the stat records if the tree that they belong to, that of the root's record, is no longer in the store.
    /// Returns true if there are usable records.
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

    /// Returns the stat record of the directory at `path`.
    pub(super) fn stat_record(&self, path: &[u8]) -> StoreResult<Option<StatRecord>> {
        let index = &self.store.inner.index;
        let txn = index.read()?;
        let bytes = index.stats.get(&txn, &key(&self.id, path))?;
        // An undecodable record is ignored: the files are read again.
        Ok(bytes.and_then(|bytes| StatRecord::decode(bytes).ok()))
    }

    /// Replaces and removes stat records.
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

    /// Removes all stat records: they belong to a tree that is no longer in the store.
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
