//! Changes a directory from one tree to another, and writes only the differences. Checkouts use this.
//!
//! `check` searches for local changes, `apply` walks both trees and changes the entries that differ, with `write` and
//! `remove`, and `links` creates hard links at the end. The stat records (fingerprints of the files of a directory, see
//! `stat_index.rs`) tell which files are unchanged on disk.

mod apply;
mod check;
mod links;
mod remove;
mod write;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Gid, Mode, Stat, Uid, fchmod, fchown, statat};
use rustix::io::Errno;

use crate::entry::{DirectoryNode, Entry, Node};
use crate::error::StoreError;
use crate::node::{NodeKind, NodeRef, Xattrs};
use crate::page::EntryTime;
use crate::platform::RawDir;
use crate::progress::Progress;
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree_path::DEPTH_MAX;

use super::checkout_options::{CheckoutOptions, CheckoutReport};
use super::error::{Context, DirectoryError, Result};
use super::owner_ids::OwnerIds;
use super::path::{full_path, open_directory, os_path};
use super::read::is_reliable;
use super::stat_index::StatRecord;
use super::temporary_access::TemporaryAccess;
use super::tracked_directory::TrackedDirectory;
use super::tree_listing::{ListedEntry, TreeIds};
use super::xattrs;

/// Set-user-id and set-group-id bits.
const SET_ID: u16 = 0o6000;

/// Change of a directory from one tree to another. [`Self::check`] searches for local changes, [`Self::apply`] writes,
/// and [`Self::finish`] records the new fingerprints of the files.
pub(super) struct Switch<'a> {
    store: &'a Store,
    pub(super) tracked: &'a TrackedDirectory<'a>,
    /// Open directory that is changed.
    pub(super) root: &'a OwnedFd,
    pub(super) options: &'a CheckoutOptions,
    /// Unique id of this checkout, which the names of its temporary files contain.
    pub(super) checkout_id: &'a str,
    pub(super) progress: &'a dyn Progress,
    /// Paths with local changes that the switch would undo.
    edits: Mutex<Vec<PathBuf>>,
    /// New stat records by path of their directory; `None` for removed directories.
    records: Mutex<Vec<(Vec<u8>, Option<StatRecord>)>>,
    /// Hard-linked files that were written, by link label: the number that all names of a file share in the tree.
    links: Mutex<HashMap<u64, LinkGroup>>,
    /// Temporary access to the directories in which hard links are created.
    access: TemporaryAccess<'a>,
    /// Inodes of hard-linked files with their link labels, to be recorded.
    labels: Mutex<Vec<(u64, u64)>>,
    /// Number in the name of the next temporary file.
    next_temporary: AtomicU64,
    /// Counters for the fields of [`CheckoutReport`] with these names.
    written: AtomicU64,
    removed: AtomicU64,
    unchanged: AtomicU64,
    bytes: AtomicU64,
}

/// Hard-linked file or symlink, of which at least the first name was written.
struct LinkGroup {
    node: Node,
    /// Paths and modification times. The first path was written; the others are linked to it at the end.
    names: Vec<(Vec<u8>, Option<Timestamp>)>,
}

/// An open directory and its stat record.
struct OpenDirectory<'p> {
    fd: &'p OwnedFd,
    /// Path relative to the root.
    path: &'p [u8],
    /// Stat record of the old tree; `None` if there is none.
    record: Option<&'p StatRecord>,
}

impl<'a> Switch<'a> {
    pub(super) fn new(
        store: &'a Store,
        tracked: &'a TrackedDirectory<'a>,
        root: &'a OwnedFd,
        options: &'a CheckoutOptions,
        checkout_id: &'a str,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            store,
            tracked,
            root,
            options,
            checkout_id,
            progress,
            edits: Mutex::default(),
            records: Mutex::default(),
            links: Mutex::default(),
            access: TemporaryAccess::new(root, &tracked.path),
            labels: Mutex::default(),
            next_temporary: AtomicU64::new(0),
            written: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Stores the stat records and link labels, and adds the counters to the report.
    pub(super) fn finish(&self, report: &mut CheckoutReport) -> Result<()> {
        let mut records = std::mem::take(&mut *self.records.lock());
        // A file that was written within the last tick of the clock could change without a new timestamp.
        let now = Timestamp::now().0;
        for (_, record) in &mut records {
            if let Some(record) = record {
                record.own_reliable = record.own_reliable && is_reliable(&record.own_fingerprint, now);
                for entry in &mut record.entries {
                    entry.reliable = entry.reliable
                        && (entry.fingerprint.is_directory() || is_reliable(&entry.fingerprint, now));
                }
            }
        }
        // A directory that was removed and created again has two records. The last one is stored.
        let mut last: BTreeMap<Vec<u8>, Option<StatRecord>> = BTreeMap::new();
        for (path, record) in records {
            last.insert(path, record);
        }
        self.tracked.set_labels(&std::mem::take(&mut *self.labels.lock()))?;
        self.tracked.update_stat_records(&last.into_iter().collect::<Vec<_>>())?;
        let counts = self.report();
        report.written += counts.written;
        report.removed += counts.removed;
        report.unchanged += counts.unchanged;
        report.bytes += counts.bytes;
        Ok(())
    }

    /// Returns the counters so far.
    pub(super) fn report(&self) -> CheckoutReport {
        CheckoutReport {
            written: self.written.load(Ordering::Relaxed),
            removed: self.removed.load(Ordering::Relaxed),
            unchanged: self.unchanged.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            ..CheckoutReport::default()
        }
    }

    /// Returns UID and GID on disk for an entry with these attributes; `None` for the ids of the process.
    fn owner(&self, xattrs: &Xattrs) -> Option<(u32, u32)> {
        self.options.owner_ids.map(|ids| ids.owner_on_disk(xattrs)).or(self.options.owner)
    }

    /// Sets the owner of a written file with these attributes.
    fn set_owner(&self, file: impl AsFd, xattrs: &Xattrs, entry_path: &[u8]) -> Result<()> {
        let Some((user, group)) = self.owner(xattrs) else { return Ok(()) };
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        fchown(file, Some(user), Some(group)).context("change the owner of", &self.full_path(entry_path))
    }

    /// Counts `bytes` against the write limit of the options. Fails if the limit does not allow them.
    fn count_write(&self, bytes: u64, entry_path: &[u8]) -> Result<()> {
        let Some(limit) = &self.options.limit else { return Ok(()) };
        limit.take(bytes).context("write", &self.full_path(entry_path))
    }

    /// Converts extended attributes of the tree to attributes on disk. Depending on the options, removes the owner and
    /// escapes attributes of overlays.
    fn written_xattrs<'x>(&self, xattrs: &'x Xattrs) -> Cow<'x, Xattrs> {
        let xattrs = match self.options.owner_ids {
            Some(_) => OwnerIds::xattrs_on_disk(xattrs),
            None => Cow::Borrowed(xattrs),
        };
        match xattrs {
            _ if !self.options.escape_overlay_xattrs => xattrs,
            Cow::Borrowed(xattrs) => xattrs::escape(xattrs),
            Cow::Owned(xattrs) => Cow::Owned(xattrs::escape(&xattrs).into_owned()),
        }
    }

    /// Returns the stat record of a directory if it is of the tree `from`. An interrupted operation may leave records
    /// of another tree.
    fn record_of(&self, path: &[u8], from: Option<TreeIds>) -> Result<Option<StatRecord>> {
        Ok(self.tracked.stat_record(path)?.filter(|record| from == Some((record.node, record.times_node))))
    }

    /// Returns the status of an entry; `None` if it does not exist.
    fn stat(&self, fd: &OwnedFd, entry_path: &[u8], name: &[u8]) -> Result<Option<Stat>> {
        match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(Some).context("stat", &self.full_path(entry_path)),
        }
    }

    /// Restores the mode of a directory if it was changed for access.
    fn restore_mode(&self, fd: &OwnedFd, path: &[u8], former_mode: Option<Mode>) -> Result<()> {
        former_mode
            .map_or(Ok(()), |mode| fchmod(fd, mode))
            .context("change the mode of", &self.full_path(path))
    }

    /// Restores the mode of a directory that is no longer open, if the mode was changed.
    fn restore_mode_at(&self, path: &[u8], former_mode: Option<Mode>) -> Result<()> {
        if former_mode.is_none() {
            return Ok(());
        }
        let fd = open_directory(self.root, path).context("open", &self.full_path(path))?;
        self.restore_mode(&fd, path, former_mode)
    }

    /// Lists the names in a directory on disk.
    fn list_names(&self, fd: &OwnedFd, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let listing = open_directory(fd, b"").context("open", &self.full_path(path))?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&listing, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.context("list", &self.full_path(path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    /// Decodes an entry of a tree. Fails for a directory without times.
    fn decode_entry(&self, raw: ListedEntry<'_>) -> Result<Entry> {
        let decode_error =
            |source| StoreError::Undecodable { what: "an entry of a directory".to_owned(), source };
        let node_ref = NodeRef::decode(raw.node_ref).map_err(decode_error)?;
        let time = EntryTime::decode(raw.time).map_err(decode_error)?;
        let entry = self.store.entry_from_parts(raw.name, node_ref, time)?;
        // `Listing` needs the times: a directory without them would be treated as empty.
        if matches!(&entry.node, Node::Directory(node) if node.times.is_none()) {
            return Err(StoreError::Refused("a directory of the tree has no times".to_owned()).into());
        }
        debug_assert!(entry.node.kind() != NodeKind::Directory || entry.link_label.is_none());
        Ok(entry)
    }

    /// Fails if a directory is nested too deeply.
    fn check_depth(&self, path: &[u8], depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(DirectoryError::TooDeep { path: self.full_path(path) });
        }
        Ok(())
    }

    /// Returns the error for a name that the file system treats as equal to another name of the tree.
    fn name_collision(&self, path: &[u8]) -> DirectoryError {
        DirectoryError::Collision { directory: self.tracked.path.clone(), path: os_path(path).to_owned() }
    }

    fn full_path(&self, path: &[u8]) -> PathBuf {
        full_path(&self.tracked.path, path)
    }
}

/// Returns the ids of a directory's node and of its times; `None` if there is no directory, or its times are not known.
fn tree_ids(directory: Option<&DirectoryNode>) -> Option<TreeIds> {
    directory.and_then(|node| node.times.map(|times| (node.id, times)))
}
