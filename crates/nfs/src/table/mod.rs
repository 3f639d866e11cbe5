//! Table of the files of an export that clients have handles for.
//!
//! A file handle has a file id. The table has, for each id, the location at which the file was seen last, and its
//! inode. It is kept in memory. Each change is also appended to a log before the reply is sent that tells a client of
//! it. So handles survive the end of the server, even if a signal kills it.
//!
//! When the memory for tables is used up, files that were not used for a long time are evicted: their handles become
//! stale.

mod budget;
mod entry;
mod eviction;
mod log;
mod record;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::budget::Account;
pub(crate) use self::budget::TableBudget;
pub(crate) use self::entry::{Entry, FileId, Inode, Location, ROOT};
use self::eviction::CHANCES_MAX;
use self::log::{Log, Records};
pub(crate) use self::record::Header;
use self::record::Record;
use crate::error::NfsError;
use crate::random::{random_bytes, random_u64};
use crate::state_dir::state_error;

/// Maximum number of hard links of a file that are stored in addition to its main location.
const OTHER_LOCATIONS_MAX: usize = 8;

/// Maximum length of a revision in the header of a table, in bytes. In place of a longer one its hash is stored,
/// because the length of a record in the log is limited.
const REVISION_MAX: usize = 1024;

/// Time after a failure to rewrite the log until the next attempt.
const RETRY_BACKOFF: Duration = Duration::from_secs(30);

/// File as it was just seen in the file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) inode: Inode,
    /// Inode number for clients, if the file is new.
    pub(crate) fileid: u64,
    /// True if the file has further hard links.
    pub(crate) is_linked: bool,
}

/// Returns the generation of a stored table: the random number in all of its handles. `None` if there is no table, or
/// its header is damaged.
pub(crate) fn stored_generation(path: &Path) -> io::Result<Option<u64>> {
    match Log::read_header(path) {
        Ok(header) => Ok(header.map(|header| header.generation)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Table of the files of an export.
#[derive(Debug)]
pub(crate) struct Table {
    header: Header,
    files: HashMap<FileId, Entry>,
    /// Files by device and inode number.
    by_inode: HashMap<(u64, u64), FileId>,
    /// Number of known locations in each directory, also in directories that are not in the table any more.
    children: HashMap<FileId, u32>,
    /// Ids of all files in the order in which they are considered for eviction. Ids of removed files are skipped.
    clock: VecDeque<FileId>,
    /// Ids that were evicted since the last call of [`take_evicted`](Self::take_evicted).
    evicted: Vec<FileId>,
    /// Memory that this table uses.
    memory: Account,
    /// NFS write verifier.
    verifier: u64,
    /// Upper half of the ids that this process assigns. It is random: a crash of the machine may lose records with ids
    /// of an earlier process, and these ids must not be assigned again.
    epoch: u32,
    /// Lower half of the id that was assigned last; zero before the first.
    assigned: u32,
    /// True if the file system is an overlay. The first change of a file of a lower layer copies it up: it keeps its
    /// inode number, but gets another birth time.
    copies_up: bool,
    log: Log,
    /// After a failure to rewrite the log, the time before which it is not tried again.
    retry_at: Option<Instant>,
}

impl Table {
    /// Opens the stored table of an export. Replaces it with an empty one if there is none, its header is damaged, or
    /// it belongs to another directory or revision.
    pub(crate) fn open(
        path: &Path,
        root: Inode,
        revision: &str,
        copies_up: bool,
        boot_id: [u8; 16],
        budget: &Arc<TableBudget>,
    ) -> Result<Self, NfsError> {
        let revision = &*stored_revision(revision);
        let mut table = match Log::open(path).map_err(state_error(path))? {
            Some((log, header, records)) if header.root.is_same(&root) && header.revision == revision => {
                let mut table = Self::empty(log, header, copies_up, budget);
                table.replay(records).map_err(state_error(path))?;
                table
            }
            _ => {
                let header = Header {
                    generation: random_u64(),
                    root,
                    revision: revision.to_owned(),
                    boot_id: [0; 16],
                };
                let log = Log::create(path, &header, std::iter::empty()).map_err(state_error(path))?;
                Self::empty(log, header, copies_up, budget)
            }
        };
        table.set_boot(boot_id);
        if let Err(error) = table.flush() {
            // The table in memory is complete, and `maintain` tries to write it again.
            tracing::warn!(error = crate::error::chain(&error), "failed to update NFS file handles");
        }
        Ok(table)
    }

    /// Returns a table without files.
    fn empty(log: Log, header: Header, copies_up: bool, budget: &Arc<TableBudget>) -> Self {
        Self {
            header,
            files: HashMap::new(),
            by_inode: HashMap::new(),
            children: HashMap::new(),
            clock: VecDeque::new(),
            evicted: Vec::new(),
            memory: Account::new(budget),
            verifier: 0,
            epoch: u32::from_le_bytes(random_bytes()).max(1),
            assigned: 0,
            copies_up,
            log,
            retry_at: None,
        }
    }

    /// Applies the records of the log. Evicts files if the memory is not sufficient, for example because the limit was
    /// larger when the log was written.
    fn replay(&mut self, mut records: Records) -> io::Result<()> {
        while let Some(record) = records.next()? {
            self.apply(record);
            self.make_room();
        }
        self.log.resume(&records)?;
        // A directory may have been evicted before a file below it was read.
        if !self.evicted.is_empty() {
            self.evict_unreachable();
        }
        self.evicted.clear();
        Ok(())
    }

    /// Applies a record of the log.
    fn apply(&mut self, record: Record) {
        match record {
            Record::File { id, inode, fileid, location } => {
                let entry = Entry::new(inode, fileid, location);
                if self.files.contains_key(&id) {
                    self.change(id, |present| *present = entry);
                    self.by_inode.insert(inode.key(), id);
                } else {
                    self.insert(id, entry);
                }
            }
            Record::OtherLocation { id, location } => self.change(id, |entry| {
                if entry.others.len() < OTHER_LOCATIONS_MAX {
                    entry.others.push(location);
                }
            }),
            Record::Forgotten { id } => self.remove(id),
            Record::Verifier { boot_id, verifier } => {
                self.header.boot_id = boot_id;
                self.verifier = verifier;
            }
        }
    }

    /// Inserts a file that is not in the table.
    fn insert(&mut self, id: FileId, entry: Entry) {
        self.add_to_counts(&entry);
        self.by_inode.insert(entry.inode.key(), id);
        self.files.insert(id, entry);
        self.trim_clock();
        self.clock.push_back(id);
    }

    /// Changes a file that is in the table.
    fn change(&mut self, id: FileId, change: impl FnOnce(&mut Entry)) {
        let Some(mut entry) = self.files.remove(&id) else { return };
        self.remove_from_counts(&entry);
        change(&mut entry);
        self.add_to_counts(&entry);
        self.files.insert(id, entry);
    }

    /// Removes a file from memory, without a record in the log.
    fn remove(&mut self, id: FileId) {
        let Some(entry) = self.files.remove(&id) else { return };
        self.remove_from_counts(&entry);
        if self.by_inode.get(&entry.inode.key()) == Some(&id) {
            self.by_inode.remove(&entry.inode.key());
        }
    }

    /// Adds the memory and the locations of a file to the counts of the table.
    fn add_to_counts(&mut self, entry: &Entry) {
        self.memory.charge(entry);
        for location in entry.locations() {
            *self.children.entry(location.parent).or_default() += 1;
        }
    }

    /// Subtracts the memory and the locations of a file from the counts of the table.
    fn remove_from_counts(&mut self, entry: &Entry) {
        self.memory.release(entry);
        for location in entry.locations() {
            if let Some(count) = self.children.get_mut(&location.parent) {
                *count -= 1;
                if *count == 0 {
                    self.children.remove(&location.parent);
                }
            }
        }
    }

    /// Chooses a new write verifier if there is none yet, or if the machine was restarted since it was chosen: data
    /// that was not synced may be lost then.
    fn set_boot(&mut self, boot_id: [u8; 16]) {
        if self.verifier == 0 || self.header.boot_id != boot_id {
            self.header.boot_id = boot_id;
            self.verifier = random_u64();
            // If this record cannot be stored, the next server finds another boot id in the log and changes the
            // verifier.
            self.log.append(&self.verifier_record());
        }
    }

    /// Changes the write verifier, because unstable data may have been lost.
    pub(crate) fn change_verifier(&mut self) {
        self.verifier = random_u64();
        // With the former verifier, the next server would tell clients that lost data was written.
        self.log.append_required(&self.verifier_record());
    }

    fn verifier_record(&self) -> Record {
        Record::Verifier { boot_id: self.header.boot_id, verifier: self.verifier }
    }

    /// Returns the NFS write verifier, which stays equal as long as no unsynced data can have been lost.
    pub(crate) fn verifier(&self) -> u64 {
        self.verifier
    }

    /// Returns the random number that all handles of this table have. Handles with another generation are stale.
    pub(crate) fn generation(&self) -> u64 {
        self.header.generation
    }

    /// Returns the id that will be assigned next, for a later call of [`is_older`](Self::is_older).
    pub(crate) fn next_unassigned(&self) -> FileId {
        FileId((u64::from(self.epoch) << 32) | (u64::from(self.assigned) + 1))
    }

    /// Returns true if `id` was assigned before [`next_unassigned`](Self::next_unassigned) returned `next`.
    pub(crate) fn is_older(&self, id: FileId, next: FileId) -> bool {
        // Ids with another upper half were assigned by an earlier process.
        id.0 >> 32 != next.0 >> 32 || id < next
    }

    /// Returns the number of files.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns a file, which counts as used then; `None` if the id is not in the table. The root has no entry.
    pub(crate) fn get(&self, id: FileId) -> Option<&Entry> {
        self.files.get(&id).inspect(|entry| entry.chances.set(CHANCES_MAX))
    }

    /// Returns true if `found` is the inode of an entry, or a copy of it in the upper layer of an overlay.
    pub(crate) fn is_same(&self, entry: Inode, found: &Inode) -> bool {
        entry.is_same(found) || self.copies_up && entry.may_be_copied_to(found, &self.header.root)
    }

    /// Returns the id of a file by its inode, if it has one.
    pub(crate) fn find(&self, inode: &Inode) -> Option<FileId> {
        if self.header.root.key() == inode.key() {
            return Some(ROOT);
        }
        let id = *self.by_inode.get(&inode.key())?;
        self.files.get(&id).filter(|entry| self.is_same(entry.inode, inode)).map(|_| id)
    }

    /// Returns true if a file with this device and inode number (`key`) is in the table, but not at this location.
    /// `parent` is `None` for a directory that has no id.
    pub(crate) fn is_elsewhere(&self, key: (u64, u64), parent: Option<FileId>, name: &CStr) -> bool {
        let Some(entry) = self.by_inode.get(&key).and_then(|id| self.files.get(id)) else { return false };
        let is_here = |it: &Location| parent.is_some_and(|parent| it.is(parent, name));
        !entry.locations().any(is_here)
    }

    /// Returns the id of a file that was seen at a location, and the inode number that clients see. A file that is not
    /// in the table gets a new id. A file that was moved keeps its id, and the location is added.
    pub(crate) fn id_of(&mut self, parent: FileId, name: &CStr, seen: Seen) -> (FileId, u64) {
        match self.by_inode.get(&seen.inode.key()).copied() {
            Some(id) => match self.files.get(&id) {
                Some(entry) if self.is_same(entry.inode, &seen.inode) => {
                    let fileid = entry.fileid;
                    self.seen_at(id, parent, name, seen);
                    (id, fileid)
                }
                // Another file has the inode number now, so the old file was removed.
                _ => {
                    self.forget(id);
                    self.add(parent, name, seen)
                }
            },
            None => self.add(parent, name, seen),
        }
    }

    /// Adds a file that is not in the table, and returns its id and the inode number that clients see.
    fn add(&mut self, parent: FileId, name: &CStr, seen: Seen) -> (FileId, u64) {
        let id = self.next_id();
        let location = Location { parent, name: Arc::from(name) };
        let entry = Entry::new(seen.inode, seen.fileid, Some(location));
        // One chance less than a file that was used after it was added.
        entry.chances.set(CHANCES_MAX - 1);
        self.insert(id, entry);
        self.write_entry(id);
        self.make_room();
        (id, seen.fileid)
    }

    /// Assigns an id.
    fn next_id(&mut self) -> FileId {
        self.assigned = self.assigned.wrapping_add(1);
        if self.assigned == 0 {
            self.epoch = u32::from_le_bytes(random_bytes()).max(1);
        }
        FileId((u64::from(self.epoch) << 32) | u64::from(self.assigned))
    }

    /// Records that a file in the table was seen at a location.
    fn seen_at(&mut self, id: FileId, parent: FileId, name: &CStr, seen: Seen) {
        let Some(entry) = self.files.get(&id) else { return };
        entry.chances.set(CHANCES_MAX);
        let is_known = entry.locations().any(|it| it.is(parent, name));
        // True for a further hard link. False if the file was moved.
        let is_other = seen.is_linked && entry.location.is_some();
        let is_full = is_other && entry.others.len() >= OTHER_LOCATIONS_MAX;
        if entry.inode == seen.inode && (is_known || is_full) {
            return;
        }
        self.change(id, |entry| {
            entry.inode = seen.inode;
            if is_known || is_full {
                return;
            }
            let location = Location { parent, name: Arc::from(name) };
            if is_other {
                entry.others.push(location);
            } else {
                entry.location = Some(location);
                entry.others.clear();
            }
        });
        self.write_entry(id);
        self.make_room();
    }

    /// Records that a client renamed a file. `from` and `to` are directory and name.
    pub(crate) fn moved(&mut self, inode: &Inode, from: (FileId, &CStr), to: (FileId, &CStr)) {
        let Some(id) = self.find(inode) else { return };
        let target = Location { parent: to.0, name: Arc::from(to.1) };
        let is_source = |it: &Location| it.is(from.0, from.1);
        self.change(id, |entry| {
            entry.others.retain(|it| !is_source(it) && *it != target);
            match &entry.location {
                // The main location is another hard link and stays.
                Some(location) if !is_source(location) && *location != target => {
                    if entry.others.len() < OTHER_LOCATIONS_MAX {
                        entry.others.push(target);
                    }
                }
                _ => entry.location = Some(target),
            }
        });
        self.write_entry(id);
    }

    /// Records that a name of a file was removed. With `was_last` it was the last one, so the file is removed too.
    pub(crate) fn unlinked(&mut self, inode: &Inode, parent: FileId, name: &CStr, was_last: bool) {
        let Some(id) = self.find(inode) else { return };
        if was_last {
            self.forget(id);
            return;
        }
        let is_here = |it: &Location| it.is(parent, name);
        self.change(id, |entry| {
            entry.others.retain(|it| !is_here(it));
            if entry.location.as_ref().is_some_and(is_here) {
                entry.location = entry.others.pop();
            }
        });
        self.write_entry(id);
    }

    /// Removes a file from the table and adds this to the log. Its handles are stale then.
    pub(crate) fn forget(&mut self, id: FileId) {
        if self.files.contains_key(&id) {
            self.remove(id);
            self.log.append(&Record::Forgotten { id });
        }
    }

    /// Adds the records of a file to the log.
    fn write_entry(&mut self, id: FileId) {
        let Some(entry) = self.files.get(&id) else { return };
        for record in records_of(id, entry) {
            self.log.append(&record);
        }
    }

    /// Writes all changes since the last call to the file of the log, so that they survive the end of this process.
    /// After a failure, changes are only in memory until [`maintain`](Self::maintain) has rewritten the log.
    pub(crate) fn flush(&mut self) -> Result<(), NfsError> {
        if self.log.has_pending() { self.log.flush().map_err(state_error(self.log.path())) } else { Ok(()) }
    }

    /// Releases memory, and rewrites the log if most of it is obsolete or a write to it has failed. Returns true if the
    /// log was rewritten. Call it periodically on a thread that has not taken the user of an export: only the server's
    /// own user may write to the directory of the log.
    pub(crate) fn maintain(&mut self, now: Instant) -> Result<bool, NfsError> {
        self.shrink();
        self.flush()?;
        let is_due = self.log.is_given_up() || self.log.is_wasteful(self.files.len());
        if !is_due || self.retry_at.is_some_and(|at| now < at) {
            return Ok(false);
        }
        let result = self.compact();
        self.retry_at = result.is_err().then(|| now + RETRY_BACKOFF);
        result.map(|()| true)
    }

    /// Replaces the log with a new one that has only the present files.
    fn compact(&mut self) -> Result<(), NfsError> {
        // In the order of eviction, so that the next server evicts in this order too.
        let files = self.clock.iter().filter_map(|id| Some((id, self.files.get(id)?)));
        let files = files.flat_map(|(id, entry)| records_of(*id, entry));
        let records = std::iter::once(self.verifier_record()).chain(files);
        let path = self.log.path().to_owned();
        self.log = Log::create(&path, &self.header, records).map_err(state_error(&path))?;
        Ok(())
    }
}

/// Returns the form in which a revision is stored: the text, or its hash if it is too long.
fn stored_revision(revision: &str) -> Cow<'_, str> {
    if revision.len() <= REVISION_MAX {
        return Cow::Borrowed(revision);
    }
    Cow::Owned(format!("blake3:{}", blake3::hash(revision.as_bytes())))
}

/// Returns the records of a file: the file with its main location, and its further locations.
fn records_of(id: FileId, entry: &Entry) -> impl Iterator<Item = Record> {
    let file =
        Record::File { id, inode: entry.inode, fileid: entry.fileid, location: entry.location.clone() };
    let others = entry.others.clone().into_iter().map(move |location| Record::OtherLocation { id, location });
    std::iter::once(file).chain(others)
}

#[cfg(test)]
mod tests;
