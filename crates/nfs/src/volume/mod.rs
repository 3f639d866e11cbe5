//! Volume: the directory of an export, with the table of its file handles and its open descriptors.
//!
//! A volume has a *generation*: a random number in all of its handles. When the directory of the export is replaced,
//! another volume with another generation takes the place of this one.
//!
//! A file is accessed by the descriptor of its directory and a single path component. Directories are opened one
//! component at a time, never through symlinks or mounts. So nothing outside the root can be reached, even if a local
//! process renames files at the same moment.

mod descriptors;
mod errors;
mod locate;
mod names;
mod open;
mod search;
mod stat;
mod streams;
mod walked;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use linux_raw_sys::general::{EXT4_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::StatVfs;

use self::descriptors::Descriptors;
pub(crate) use self::descriptors::{Descriptor, OpenFileCount, OpenMode};
pub(crate) use self::locate::{Files, FoundFile, Locator};
pub(crate) use self::names::Name;
pub(crate) use self::open::Changes;
use self::stat::stat_any;
pub(crate) use self::stat::{Stat, stat_at, stat_open};
pub(crate) use self::streams::Stream;
use self::streams::Streams;
use self::walked::Searches;
use crate::error::NfsError;
use crate::server::Rules;
use crate::table::{FileId, ROOT, Seen, Table, TableBudget};
use crate::wire::Status;

/// `f_type` of the file systems (ext4, XFS, tmpfs) of which a listing has the same inode numbers as `statx`, all on one
/// device. A listing of an overlay may have numbers of different layers, and one of Btrfs those of subvolumes.
const PLAIN_MAGICS: [u32; 3] = [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC];

/// Directory of an export: its root, the table of the files that clients have handles for, and open descriptors.
pub(crate) struct Volume {
    /// Settings of the export.
    rules: Arc<Rules>,
    generation: u64,
    root: Arc<Descriptor>,
    /// Device number of the root.
    root_device: u64,
    /// True if the inode numbers in a listing of a directory are those of [`Stat`], all on the device of the root.
    lists_true_numbers: bool,
    /// Table that maps the ids in file handles to names and inodes.
    table: Mutex<Table>,
    /// Cache of open directories and files.
    descriptors: Descriptors,
    /// Open listings of directories.
    streams: Streams,
    /// Results of the last searches for moved files.
    searches: Searches,
    /// True from a failure to write the table until the table was rewritten.
    is_failing: AtomicBool,
}

impl Volume {
    /// Opens the directory of an export. Uses the stored table if it belongs to the same directory and revision, and
    /// otherwise replaces it with an empty one.
    pub(crate) fn open(
        rules: Arc<Rules>,
        root: OwnedFd,
        revision: &str,
        table: &Path,
        open_files: &Arc<OpenFileCount>,
        budget: &Arc<TableBudget>,
    ) -> Result<Self, NfsError> {
        check_identity(&rules)?;
        let unusable = |source: io::Error| NfsError::UnusableRoot { name: rules.name.clone(), source };
        let stat = stat_open(&root).map_err(|error| unusable(error.into()))?;
        if !stat.is_directory() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let root_device = stat.device();
        // In an overlay, the first change of a file of a lower layer copies it to the upper layer.
        let magic = file_system_magic(root.as_fd()).map_err(unusable)?;
        let copies_up = magic == OVERLAYFS_SUPER_MAGIC;
        let boot_id = boot_id().map_err(unusable)?;
        let table = Table::open(table, stat.inode(root_device), revision, copies_up, boot_id, budget)?;
        Ok(Self {
            generation: table.generation(),
            rules,
            root: Arc::new(Descriptor { fd: root, mode: OpenMode::Directory }),
            root_device,
            lists_true_numbers: PLAIN_MAGICS.contains(&magic),
            table: Mutex::new(table),
            descriptors: Descriptors::new(Arc::clone(open_files)),
            streams: Streams::default(),
            searches: Searches::default(),
            is_failing: AtomicBool::new(false),
        })
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the rules for a caller that may keep them longer than the volume.
    pub(crate) fn shared_rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules)
    }

    /// Returns the random number that is part of every file handle of this volume.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Returns the id in the table and the inode number for clients of the file at an entry. Gives the file an id if it
    /// has none. `stat` was just read.
    pub(crate) fn id_of(&self, parent: FileId, name: &std::ffi::CStr, stat: &Stat) -> (FileId, u64) {
        let mut table = self.table();
        let result = table.id_of(parent, name, self.seen(stat));
        self.close_evicted(table);
        result
    }

    /// Returns the inode number for clients of an entry in a listing of a directory, equal to that in its attributes.
    /// `listed` is the number in the listing, which is also returned for a mount point and for an entry that was
    /// removed.
    pub(crate) fn listed_fileid(&self, directory: &Descriptor, name: &std::ffi::CStr, listed: u64) -> u64 {
        if self.lists_true_numbers {
            return listed;
        }
        // The directory above may be the root of the export, which may be a mount point.
        let stat = if name == c".." { stat_any(directory, name) } else { stat_at(directory, name) };
        let Ok(stat) = stat else { return listed };
        let (table, seen) = (self.table(), self.seen(&stat));
        let known = table.find(&seen.inode).and_then(|id| table.get(id)).map(|entry| entry.fileid);
        known.unwrap_or(seen.fileid)
    }

    /// Closes the descriptors of files that were evicted from the table. Otherwise a cached descriptor could be used
    /// although the handle of its file is stale.
    fn close_evicted(&self, mut table: MutexGuard<'_, Table>) {
        let evicted = table.take_evicted();
        drop(table);
        for id in evicted {
            self.descriptors.remove(id);
        }
    }

    /// Converts a status to the form in which the table compares and stores files.
    fn seen(&self, stat: &Stat) -> Seen {
        stat.seen(self.root_device)
    }

    /// Records that a client renamed an entry. `from` and `to` are directory and name. `file` is the status of the file
    /// before the rename, and `replaced` that of the file that had the new name.
    pub(crate) fn moved(
        &self,
        file: &Stat,
        from: (FileId, &std::ffi::CStr),
        to: (FileId, &std::ffi::CStr),
        replaced: Option<&Stat>,
    ) {
        let inode = file.inode(self.root_device);
        if let Some(replaced) = replaced
            && replaced.inode(self.root_device) != inode
        {
            self.unlinked(replaced, to);
        }
        self.table().moved(&inode, from, to);
    }

    /// Records that a client removed an entry. `from` is directory and name. `before` is the status of the file before
    /// the removal.
    pub(crate) fn unlinked(&self, before: &Stat, from: (FileId, &std::ffi::CStr)) {
        let inode = before.inode(self.root_device);
        let was_last = before.is_directory() || before.0.stx_nlink <= 1;
        let mut table = self.table();
        let id = table.find(&inode);
        table.unlinked(&inode, from.0, from.1, was_last);
        drop(table);
        if let Some(id) = id.filter(|id| was_last && *id != ROOT) {
            self.descriptors.remove(id);
        }
    }

    /// Returns the NFS write verifier. When it changes, clients send unsynced data again.
    pub(crate) fn verifier(&self) -> u64 {
        self.table().verifier()
    }

    /// Changes the write verifier, after the kernel has reported that data could not be written.
    pub(crate) fn change_verifier(&self) {
        self.table().change_verifier();
    }

    /// Writes the changes of the table to its log. Call it before the reply is sent that tells a client of new handles.
    /// A failure is only logged.
    pub(crate) fn save_handles(&self) {
        let result = self.table().flush();
        if let Err(error) = result {
            self.report(&error);
        }
    }

    /// Logs that the table could not be written, once until the table was rewritten. The handles that were not stored
    /// stay valid as long as this process runs.
    fn report(&self, error: &NfsError) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let (error, export) = (crate::error::chain(error), &self.rules.name);
            tracing::warn!(error, export, "failed to save NFS file handles");
        }
    }

    /// Rewrites the log of the table if most of it is obsolete, or after a failure to write it.
    fn maintain_table(&self) {
        let mut table = self.table();
        let result = table.maintain(Instant::now());
        self.close_evicted(table);
        match result {
            Ok(true) if self.is_failing.swap(false, Ordering::Relaxed) => {
                tracing::info!(export = self.rules.name, "saved all NFS file handles");
            }
            Ok(_) => {}
            Err(error) => self.report(&error),
        }
    }

    /// Returns the size and the free space of the file system.
    pub(crate) fn space(&self) -> Result<StatVfs, Status> {
        Ok(rustix::fs::fstatvfs(&self.root.fd)?)
    }

    /// Returns a stream of the entries of a directory from the position `cookie` on; zero is the beginning. Takes the
    /// stream that [`keep_stream`](Self::keep_stream) has kept at this position, or opens a new one.
    pub(crate) fn stream(&self, id: FileId, directory: &Descriptor, cookie: u64) -> Result<Stream, Status> {
        if cookie != 0
            && let Some(kept) = self.streams.take(id, cookie)
        {
            return Ok(kept);
        }
        let mut stream = Stream::open(directory)?;
        if cookie != 0 {
            stream.seek(cookie)?;
        }
        Ok(stream)
    }

    /// Keeps a stream open for the next call of the same listing.
    pub(crate) fn keep_stream(&self, id: FileId, stream: Stream) {
        self.streams.keep(id, stream);
    }

    /// Closes descriptors that were not used for a while, and rewrites the log of the table if that is due. Call it
    /// periodically, on a thread that has not taken the user of an export: only the server's own user may write to the
    /// directory of the log.
    pub(crate) fn close_idle(&self) {
        self.descriptors.sweep();
        self.streams.sweep();
        self.maintain_table();
    }

    /// Closes all cached descriptors and streams; the root stays open.
    pub(crate) fn close_all(&self) {
        self.descriptors.clear();
        self.streams.clear();
    }
}

/// Fails if the server does not run as root and the export has another user.
fn check_identity(rules: &Rules) -> Result<(), NfsError> {
    let own = rustix::process::geteuid().as_raw();
    let uid = rules.identity.uid;
    if own == 0 || own == uid {
        return Ok(());
    }
    Err(NfsError::CannotActAs { name: rules.name.clone(), uid, own })
}

/// Returns the `f_type` of the file system of a directory.
fn file_system_magic(root: BorrowedFd<'_>) -> io::Result<u32> {
    let status = rustix::fs::fstatfs(root)?;
    Ok(u32::try_from(status.f_type).unwrap_or_default())
}

/// Returns a hash of the kernel's boot id, which changes with every start of the machine.
fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(&text).as_bytes()[..16]);
    Ok(id)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use crate::clients::ClientList;
    use crate::export::{Access, Identity};
    use crate::hooks::{NoGate, NoLimit};

    /// Creates the directory `root` in a directory and opens it as a volume.
    pub(super) fn open_volume(directory: &Path) -> Volume {
        let root = directory.join("root");
        fs::create_dir(&root).unwrap();
        let rules = Rules {
            name: "export".to_owned(),
            identity: Identity::own(),
            access: Access::ReadWrite,
            clients: ClientList::any(),
            secret: None,
            gate: Arc::new(NoGate),
            disk_limit: Arc::new(NoLimit),
        };
        let root = File::open(root).unwrap().into();
        let open_files = Arc::new(OpenFileCount::new(100));
        let budget = Arc::new(TableBudget::new(usize::MAX));
        Volume::open(Arc::new(rules), root, "", &directory.join("table"), &open_files, &budget).unwrap()
    }
}
