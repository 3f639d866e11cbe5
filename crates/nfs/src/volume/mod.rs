//! Directory of an export in one of its generations.
//!
//! A file is reached from the descriptor of its directory by one name, which is a single component. Directories
//! are opened one component at a time, never through symlinks or mounts. So nothing outside the root is reached,
//! whatever somebody inside renames at the same moment.

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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::StatVfs;

use self::descriptors::Descriptors;
pub(crate) use self::descriptors::{Descriptor, Mode, OpenFileCount};
pub(crate) use self::locate::{Files, Node, Place};
pub(crate) use self::names::Name;
pub(crate) use self::open::Changes;
pub(crate) use self::stat::{Stat, stat_at, stat_open};
pub(crate) use self::streams::Stream;
use self::streams::Streams;
use self::walked::Searches;
use crate::error::NfsError;
use crate::server::Rules;
use crate::table::{FileId, ROOT, Seen, Table, TableBudget};
use crate::wire::Status;

/// `f_type` of an overlay, from `linux/magic.h`.
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// Directory of an export in one of its generations: its root, the files that clients know, and open descriptors.
pub(crate) struct Volume {
    rules: Arc<Rules>,
    generation: u64,
    root: Arc<Descriptor>,
    root_device: u64,
    table: Mutex<Table>,
    descriptors: Descriptors,
    streams: Streams,
    searches: Searches,
    /// The table could not be written, and was not written anew since.
    is_failing: AtomicBool,
}

impl Volume {
    /// Opens a directory for an export. Its table is kept if it is that of the same directory and revision.
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
        let copies_up = is_overlay(root.as_fd()).map_err(unusable)?;
        let boot_id = boot_id().map_err(unusable)?;
        let table = Table::open(table, stat.inode(root_device), revision, copies_up, boot_id, budget)?;
        Ok(Self {
            generation: table.generation(),
            rules,
            root: Arc::new(Descriptor { fd: root, mode: Mode::Directory }),
            root_device,
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

    /// Returns the rules for longer than the volume is in use.
    pub(crate) fn shared_rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules)
    }

    /// Random number of this state of the export; part of every handle.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id and the visible inode number of an entry that was just seen.
    pub(crate) fn id_of(&self, parent: FileId, name: &std::ffi::CStr, stat: &Stat) -> (FileId, u64) {
        let mut table = self.table();
        let result = table.id_of(parent, name, self.seen(stat));
        self.close_evicted(table);
        result
    }

    /// Closes the descriptors of files that were evicted from the table, which could be used without it.
    fn close_evicted(&self, mut table: MutexGuard<'_, Table>) {
        let evicted = table.take_evicted();
        drop(table);
        for id in evicted {
            self.descriptors.remove(id);
        }
    }

    fn seen(&self, stat: &Stat) -> Seen {
        stat.seen(self.root_device)
    }

    /// Records that a client moved an entry, and that another which had the new name was replaced.
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

    /// Records that a client removed an entry. `before` is the status of its file before that.
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

    /// Write verifier.
    pub(crate) fn verifier(&self) -> u64 {
        self.table().verifier()
    }

    /// Changes the write verifier: the kernel has reported that data could not be written.
    pub(crate) fn change_verifier(&self) {
        self.table().change_verifier();
    }

    /// Writes the changes of the table to its log, before the reply that tells a client of new handles.
    pub(crate) fn save_handles(&self) {
        let result = self.table().flush();
        if let Err(error) = result {
            self.report(&error);
        }
    }

    /// Reports that the table could not be written, once until it was written anew. Its handles are valid as long as
    /// this process runs.
    fn report(&self, error: &NfsError) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let (error, export) = (crate::error::chain(error), &self.rules.name);
            tracing::warn!(error, export, "failed to save NFS file handles");
        }
    }

    /// Writes the log of the table anew if that is due.
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

    /// Returns the space of the file system.
    pub(crate) fn space(&self) -> Result<StatVfs, Status> {
        Ok(rustix::fs::fstatvfs(&self.root.fd)?)
    }

    /// Returns the entries of a directory from a position on. Zero is the beginning.
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

    /// Keeps a stream for the next call of the same listing.
    pub(crate) fn keep_stream(&self, id: FileId, stream: Stream) {
        self.streams.keep(id, stream);
    }

    /// Closes descriptors that were not used for a while, and writes the log of the table anew if that is due. Call it
    /// on a thread that acts as the server itself.
    pub(crate) fn close_idle(&self) {
        self.descriptors.sweep();
        self.streams.sweep();
        self.maintain_table();
    }

    /// Closes all descriptors but the root.
    pub(crate) fn close_all(&self) {
        self.descriptors.clear();
        self.streams.clear();
    }
}

fn check_identity(rules: &Rules) -> Result<(), NfsError> {
    let own = rustix::process::geteuid().as_raw();
    let uid = rules.identity.uid;
    if own == 0 || own == uid {
        return Ok(());
    }
    Err(NfsError::CannotActAs { name: rules.name.clone(), uid, own })
}

fn is_overlay(root: BorrowedFd<'_>) -> io::Result<bool> {
    let status = rustix::fs::fstatfs(root)?;
    Ok(u64::try_from(status.f_type) == Ok(OVERLAYFS_MAGIC))
}

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

    /// Opens the directory `root`, which is created.
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
