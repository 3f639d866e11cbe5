//! Index of a store: an LMDB database with the locations of objects in the packs, and all other records.
//!
//! Packs are append-only files that hold all objects (chunks of file content, and nodes of trees) and the log of all
//! commits. The index can be rebuilt from them (`recovery.rs`), so commits do not sync it. It is consistent after a
//! process was killed, but maybe not after a machine crash, which the trust marker detects (`index_trust.rs`).

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use crate::error::{IoContext, Result, StoreError};
use crate::id::EpisodeId;
use crate::lock_wait::WriteWaits;
use crate::log_record::Change;
use crate::log_state::LogState;
use crate::pack::Location;
use crate::platform;
use crate::record::Kind;
use crate::unsettled_cache::UnsettledCache;

/// Address space of the index in bytes, not memory or disk. Every process uses the same size: a process that
/// maps less than another one has written cannot read the rest until it reopens the store.
const MAP_SIZE: usize = 1 << 40;
/// Smallest address space to try, in bytes.
const MAP_SIZE_MIN: usize = 1 << 30;
/// Maximum number of concurrent read transactions of all processes.
const READERS_MAX: u32 = 1024;
/// Size of LMDB's lock file in bytes: a header and the reader table with 64 bytes per reader.
const LOCK_FILE_LEN: u64 = 72 << 10;
/// Free disk space in bytes below which a write error counts as a full disk.
const DISK_FULL_FREE_MAX: u64 = 1 << 20;

pub(crate) type Table = Database<Bytes, Bytes>;
pub(crate) type ReadTxn<'a> = RoTxn<'a, WithoutTls>;

/// The tables of the index. Keys are raw ids unless documented otherwise.
pub(crate) struct Index {
    pub(crate) env: Env<WithoutTls>,
    data: DataFile,
    write_waits: WriteWaits,
    /// chunk id → location
    pub(crate) chunks: Table,
    /// node id → location
    pub(crate) nodes: Table,
    /// number of a small commit (big endian) → its objects and snapshots, until they are moved to their tables
    /// (`unsettled_rows.rs`)
    pub(crate) unsettled: Table,
    pub(crate) unsettled_cache: UnsettledCache,
    /// kind, object id → location, epoch of condemnation (`gc_guards.rs`): objects that garbage collection is about to
    /// delete; they can be read, but new commits must not reuse them
    pub(crate) condemned: Table,
    /// snapshot id → record
    pub(crate) snapshots: Table,
    /// tree id, snapshot id → nothing: index of snapshots by tree
    pub(crate) trees: Table,
    /// name → snapshot id
    pub(crate) references: Table,
    /// episode id → record of a step of a search
    pub(crate) episodes: Table,
    /// parent episode id, episode id → nothing
    pub(crate) episode_children: Table,
    /// pin id → record that keeps the content of a snapshot
    pub(crate) pins: Table,
    /// pack number (big endian) → nothing: packs that commits refer to
    pub(crate) packs: Table,
    /// pack number (big endian) → nothing: bulk packs (files with the objects of large commits) that may not be on disk
    /// yet
    pub(crate) unsynced: Table,
    /// directory, path → fingerprint of a file outside of the store (`directory/stat_index.rs`); a cache, lost with a
    /// rebuild
    pub(crate) stats: Table,
    /// the one key `log` → [`LogState`]; in LMDB's unnamed root database, because every commit writes its page anyway
    pub(crate) meta: Table,
}

/// Names of the tables on disk, in the order in which [`Index::new`] takes them. `recent` is the table
/// [`Index::unsettled`].
const TABLES: [&str; 13] = [
    "chunks",
    "nodes",
    "recent",
    "condemned",
    "snapshots",
    "trees",
    "references",
    "episodes",
    "episode_children",
    "pins",
    "packs",
    "unsynced",
    "stats",
];

/// Access mode of the environment, and with it of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and write, together with any number of other processes.
    ReadWrite,
    /// Read only, while no process writes: LMDB writes no file in the directory and takes no lock.
    ReadOnly,
}

impl Index {
    /// Opens the index in `directory` and creates its tables if it is new. Takes the write lock only to
    /// create them.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        reserve_lock_file(directory)?;
        let env = open_environment(directory, Access::ReadWrite)?;
        env.clear_stale_readers()?;
        match Self::open_tables(&env, Access::ReadWrite)? {
            Some(index) => Ok(index),
            None => Self::create_tables(&env),
        }
    }

    /// Opens the index in `directory` for [`Access::ReadOnly`].
    pub(crate) fn open_read_only(directory: &Path) -> Result<Self> {
        let env = open_environment(directory, Access::ReadOnly)?;
        Self::open_tables(&env, Access::ReadOnly)?.ok_or_else(|| heed::Error::Mdb(MdbError::Invalid).into())
    }

    /// Opens the tables. Returns `None` if some of them do not exist yet.
    fn open_tables(env: &Env<WithoutTls>, access: Access) -> Result<Option<Self>> {
        let data = DataFile::open(env, access)?;
        data.check()?;
        let txn = env.read_txn()?;
        let mut tables = Vec::with_capacity(TABLES.len());
        for name in TABLES {
            tables.extend(env.open_database(&txn, Some(name))?);
        }
        let meta = env.open_database(&txn, None)?;
        // Table handles that were opened in a transaction stay valid only if the transaction is committed.
        txn.commit()?;
        Ok(match (tables.try_into(), meta) {
            (Ok(tables), Some(meta)) => Some(Self::new(env, data, tables, meta)),
            _ => None,
        })
    }

    fn create_tables(env: &Env<WithoutTls>) -> Result<Self> {
        let mut txn = env.write_txn()?;
        let mut table = |name| env.create_database(&mut txn, name);
        let meta = table(None)?;
        let mut tables = [meta; TABLES.len()];
        for (slot, name) in tables.iter_mut().zip(TABLES) {
            *slot = table(Some(name))?;
        }
        let index = Self::new(env, DataFile::open(env, Access::ReadWrite)?, tables, meta);
        index.commit(txn)?;
        Ok(index)
    }

    fn new(env: &Env<WithoutTls>, data: DataFile, tables: [Table; TABLES.len()], meta: Table) -> Self {
        let [
            chunks,
            nodes,
            unsettled,
            condemned,
            snapshots,
            trees,
            references,
            episodes,
            episode_children,
            pins,
            packs,
            unsynced,
            stats,
        ] = tables;
        Self {
            env: env.clone(),
            data,
            write_waits: WriteWaits::new(env.path().to_owned()),
            chunks,
            nodes,
            unsettled,
            unsettled_cache: UnsettledCache::default(),
            condemned,
            snapshots,
            trees,
            references,
            episodes,
            episode_children,
            pins,
            packs,
            unsynced,
            stats,
            meta,
        }
    }

    /// Starts a read transaction. It never waits.
    pub(crate) fn read(&self) -> Result<ReadTxn<'_>> {
        Ok(self.env.read_txn()?)
    }

    /// Starts a write transaction. Waits for the write lock, which one transaction of all processes holds at a time.
    pub(crate) fn write(&self) -> Result<RwTxn<'_>> {
        let _wait = self.write_waits.begin();
        Ok(self.env.write_txn()?)
    }

    /// Extends the data file to the length that [`DataFile`] requires, and syncs it.
    pub(crate) fn sync(&self) -> Result<()> {
        self.data.lengthen()?;
        Ok(self.env.force_sync()?)
    }

    /// Commits the transaction and extends the data file to the length that [`DataFile`] requires.
    pub(crate) fn commit(&self, txn: RwTxn<'_>) -> Result<()> {
        txn.commit().map_err(|error| report_full_disk(error, self.env.path()))?;
        // A failure is ignored, because the transaction is committed. If the file is too short, the next process that
        // opens the store rebuilds the index.
        drop(self.data.lengthen());
        Ok(())
    }

    pub(crate) fn log_state(&self, txn: &RoTxn<'_>) -> Result<Option<LogState>> {
        let Some(bytes) = self.meta.get(txn, b"log")? else { return Ok(None) };
        LogState::decode(bytes)
            .map(Some)
            .map_err(|source| StoreError::Undecodable { what: "the state of the log".to_owned(), source })
    }

    pub(crate) fn put_log_state(&self, txn: &mut RwTxn<'_>, state: &LogState) -> Result<()> {
        Ok(self.meta.put(txn, b"log", &state.encode())?)
    }

    /// Applies a change to the tables of snapshots, references, episodes and pins.
    pub(crate) fn apply(&self, txn: &mut RwTxn<'_>, change: &Change) -> Result<()> {
        match change {
            Change::PutSnapshot(snapshot) => {
                self.snapshots.put(txn, snapshot.id.as_bytes(), &snapshot.encode())?;
                self.trees.put(txn, &concat_ids(snapshot.tree.as_bytes(), snapshot.id.as_bytes()), &[])?;
            }
            Change::RemoveSnapshot(id) => {
                if let Some(snapshot) = self.snapshot(txn, id)? {
                    self.snapshots.delete(txn, id.as_bytes())?;
                    self.trees.delete(txn, &concat_ids(snapshot.tree.as_bytes(), id.as_bytes()))?;
                }
            }
            Change::SetReference { name, to, .. } => {
                self.references.put(txn, name.as_bytes(), to.as_bytes())?;
            }
            Change::RemoveReference { name, .. } => {
                self.references.delete(txn, name.as_bytes())?;
            }
            Change::PutEpisode { id, parent, record } => {
                self.episodes.put(txn, id.as_bytes(), record)?;
                let key = episode_key(parent.as_ref().map(EpisodeId::as_bytes), id.as_bytes());
                self.episode_children.put(txn, &key, &[])?;
            }
            Change::RemoveEpisode { id, parent } => {
                self.episodes.delete(txn, id.as_bytes())?;
                let key = episode_key(parent.as_ref().map(EpisodeId::as_bytes), id.as_bytes());
                self.episode_children.delete(txn, &key)?;
            }
            Change::PutPin { id, record } => self.pins.put(txn, id.as_bytes(), record)?,
            Change::RemovePin(id) => {
                self.pins.delete(txn, id.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Reads all rows of a table into memory.
    pub(crate) fn read_all_rows(&self, txn: &RoTxn<'_>, table: &Table) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut rows = Vec::new();
        for entry in table.iter(txn)? {
            let (key, value) = entry?;
            rows.push((key.to_vec(), value.to_vec()));
        }
        Ok(rows)
    }

    /// Returns the table of live objects of a kind.
    pub(crate) fn objects(&self, kind: Kind) -> &Table {
        if kind == Kind::Chunk { &self.chunks } else { &self.nodes }
    }

    /// Returns the location of an object that is not condemned, so that new commits may refer to it.
    pub(crate) fn find_live(&self, txn: &RoTxn<'_>, kind: Kind, id: &[u8; 32]) -> Result<Option<Location>> {
        match self.objects(kind).get(txn, id)? {
            Some(location) => Ok(Location::decode(location)),
            None => self.unsettled_location(txn, &(kind, *id)),
        }
    }

    /// Returns the location of an object, condemned or not.
    pub(crate) fn find(&self, txn: &RoTxn<'_>, kind: Kind, id: &[u8; 32]) -> Result<Option<Location>> {
        if let Some(location) = self.find_live(txn, kind, id)? {
            return Ok(Some(location));
        }
        Ok(self.condemned.get(txn, &condemned_key(kind, id))?.and_then(Location::decode))
    }
}

fn open_environment(directory: &Path, access: Access) -> Result<Env<WithoutTls>> {
    let mut flags = EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC | EnvFlags::NO_READ_AHEAD;
    if access == Access::ReadOnly {
        flags |= EnvFlags::READ_ONLY | EnvFlags::NO_LOCK;
    }
    let opened = with_largest_map(|map_size| {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_size).max_dbs(16).max_readers(READERS_MAX);
        // SAFETY: without sync a machine crash can leave the file inconsistent; because of the trust marker, the next
        // process rebuilds the file instead of reading it. `NO_READ_AHEAD` is only advice to the kernel. `NO_LOCK`
        // requires that no process writes; callers with `Access::ReadOnly` ensure that.
        unsafe { options.flags(flags) };
        // SAFETY: the directory belongs to the store. While a process holds the lock of the store, only LMDB writes or
        // truncates the file.
        unsafe { options.open(directory) }
    });
    let opened = opened.map_err(|error| report_full_disk(error, directory))?;
    close_on_exec(&directory.join("data.mdb"));
    Ok(opened)
}

/// Sets `FD_CLOEXEC` on the descriptors of this process for a file, as far as they can be listed. LMDB opens its file
/// without this flag and does not expose the descriptor, so it is found by device and inode. Child processes that must
/// not access the index are started without inherited descriptors anyway; this is an additional protection.
fn close_on_exec(path: &Path) {
    let id = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
    let (Ok(file), Ok(entries)) = (std::fs::metadata(path), std::fs::read_dir("/dev/fd")) else { return };
    for entry in entries.flatten() {
        // Other threads open and close files meanwhile.
        let Ok(metadata) = std::fs::metadata(entry.path()) else { continue };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| id(&metadata) == id(&file)) {
            // SAFETY: a descriptor of the index, which only LMDB closes, when the environment is dropped.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            if fcntl_setfd(descriptor, FdFlags::CLOEXEC).is_err() {
                return;
            }
        }
    }
}

/// Opens with [`MAP_SIZE`], or with less if a limit of the process (`RLIMIT_AS`) or of the machine requires
/// it.
fn with_largest_map<T>(mut open: impl FnMut(usize) -> heed::Result<T>) -> heed::Result<T> {
    let mut map_size = MAP_SIZE;
    loop {
        match open(map_size) {
            Err(heed::Error::Io(error))
                if error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) && map_size > MAP_SIZE_MIN =>
            {
                map_size /= 4;
            }
            opened => return opened,
        }
    }
}

/// Allocates LMDB's lock file in advance. LMDB writes to it through a memory map, so on a full disk the
/// process would die of `SIGBUS`.
fn reserve_lock_file(directory: &Path) -> Result<()> {
    let path = directory.join("lock.mdb");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.context("open", &path)?;
    let meta = file.metadata().context("stat", &path)?;
    if meta.blocks() * 512 >= LOCK_FILE_LEN {
        return Ok(());
    }
    match platform::preallocate(&file, 0, LOCK_FILE_LEN) {
        // The file is empty, so nothing is overwritten.
        Err(Errno::OPNOTSUPP) if meta.len() == 0 => {
            file.write_all_at(&[0; LOCK_FILE_LEN as usize], 0).context("write", &path)
        }
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => other.context("write", &path),
    }
}

/// Data file of the index. LMDB reads it through a memory map, so an access to a page after the end of a truncated file
/// kills the process (`SIGBUS`). LMDB does not write pages at the end that were allocated and freed again, so its file
/// may be short without being damaged. To tell a truncated file from such a file, every commit extends the file to the
/// last page that LMDB has allocated.
struct DataFile {
    env: Env<WithoutTls>,
    file: File,
    page_size: u64,
}

impl DataFile {
    fn open(env: &Env<WithoutTls>, access: Access) -> Result<Self> {
        let path = env.path().join("data.mdb");
        let file = File::options()
            .read(true)
            .write(access == Access::ReadWrite)
            .open(&path)
            .context("open", &path)?;
        Ok(Self { env: env.clone(), file, page_size: u64::from(env.stat().page_size) })
    }

    /// Returns the length of the file and the length it should have, in bytes.
    fn lengths(&self) -> io::Result<(u64, u64)> {
        let pages = self.env.info().last_page_number as u64 + 1;
        Ok((self.file.metadata()?.len(), pages * self.page_size))
    }

    /// Extends the file to the length it should have.
    fn lengthen(&self) -> Result<()> {
        let path = self.env.path();
        let (actual, expected) = self.lengths().context("stat", path)?;
        if actual >= expected {
            return Ok(());
        }
        // Never shrinks the file, even if other processes extend it at the same time.
        match platform::preallocate(&self.file, actual, expected - actual) {
            Err(Errno::OPNOTSUPP) => {
                let _write_lock = self.env.write_txn()?;
                let (actual, expected) = self.lengths().context("stat", path)?;
                if actual < expected { self.file.set_len(expected).context("extend", path) } else { Ok(()) }
            }
            other => other.context("extend", path),
        }
    }

    /// Rejects a truncated file. Retries briefly, because another process may be about to extend it after a
    /// commit.
    fn check(&self) -> Result<()> {
        for _ in 0..20 {
            let (actual, expected) = self.lengths().context("stat", self.env.path())?;
            if actual >= expected {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Err(heed::Error::Mdb(MdbError::Corrupted).into())
    }
}

/// Converts an I/O error of LMDB to a full disk if little space is free: LMDB reports a short write as `EIO`.
fn report_full_disk(error: heed::Error, directory: &Path) -> StoreError {
    match &error {
        heed::Error::Io(source) if is_disk_full(source, directory) => StoreError::Io {
            action: "write the index in",
            path: directory.to_owned(),
            source: Errno::NOSPC.into(),
        },
        _ => StoreError::from(error),
    }
}

fn is_disk_full(error: &io::Error, path: &Path) -> bool {
    let is_nearly_full =
        || rustix::fs::statvfs(path).is_ok_and(|stat| stat.f_bavail * stat.f_frsize < DISK_FULL_FREE_MAX);
    let is_short_write = error.raw_os_error() == Some(Errno::IO.raw_os_error());
    error.kind() == io::ErrorKind::StorageFull || (is_short_write && is_nearly_full())
}

/// Returns the key of an object in the table of condemned objects.
pub(crate) fn condemned_key(kind: Kind, id: &[u8; 32]) -> [u8; 33] {
    let mut key = [kind as u8; 33];
    key[1..].copy_from_slice(id);
    key
}

/// Concatenates two ids into a key.
pub(crate) fn concat_ids(first: &[u8], second: &[u8]) -> Vec<u8> {
    [first, second].concat()
}

/// Returns the key of an episode in the table of children: the ids of its parent and of itself. Sixteen zero bytes
/// stand for no parent.
pub(crate) fn episode_key(parent: Option<&[u8; 16]>, id: &[u8; 16]) -> Vec<u8> {
    concat_ids(parent.unwrap_or(&[0; 16]), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_space_does_not_depend_on_the_length_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let map_size = || Index::open(directory.path()).unwrap().env.info().map_size;
        assert_eq!(map_size(), MAP_SIZE);
        let file = File::options().write(true).open(directory.path().join("data.mdb")).unwrap();
        file.set_len(40 << 30).unwrap();
        assert_eq!(map_size(), MAP_SIZE);
    }

    #[test]
    fn a_smaller_map_is_used_if_address_space_is_limited() {
        let tried = |map_size_max: usize| {
            let mut tried = Vec::new();
            let opened = with_largest_map(|map_size| {
                tried.push(map_size);
                if map_size > map_size_max { Err(heed::Error::Io(Errno::NOMEM.into())) } else { Ok(map_size) }
            });
            (opened.ok(), tried)
        };
        assert_eq!(tried(MAP_SIZE), (Some(MAP_SIZE), vec![MAP_SIZE]));
        assert_eq!(tried(64 << 30), (Some(64 << 30), vec![MAP_SIZE, 256 << 30, 64 << 30]));
        assert_eq!(tried(0).0, None);
        let other = with_largest_map(|_| Err::<(), _>(heed::Error::Io(Errno::ACCESS.into())));
        assert!(
            matches!(other, Err(heed::Error::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied)
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn other_programs_do_not_inherit_the_index() {
        let directory = tempfile::tempdir().unwrap();
        let _env = open_environment(directory.path(), Access::ReadWrite).unwrap();
        let listed = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("0 ->") && !listed.contains("data.mdb"), "{listed}");
    }

    #[test]
    fn a_full_index_is_reported_as_full() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(64 << 10).max_dbs(1);
        // SAFETY: no other process uses this directory.
        let env = unsafe { options.open(directory.path()) }.unwrap();
        let mut txn = env.write_txn().unwrap();
        let table: Table = env.create_database(&mut txn, None).unwrap();
        let mut put = |number: u32| table.put(&mut txn, &number.to_be_bytes(), &[7; 1000]);
        let error = (0..1000).find_map(|number| put(number).err()).unwrap();
        assert!(StoreError::from(error).is_full());
    }
}
