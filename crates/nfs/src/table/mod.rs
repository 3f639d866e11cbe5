//! Table of the files of an export that clients have handles for.
//!
//! A handle holds a file id. The table says where the file with this id was seen last, and which inode it was.
//! It is kept in memory, and each change is appended to a log before the reply that tells a client of it, so
//! that handles survive the end of the server, also by a signal.

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
use self::eviction::ROUNDS;
use self::log::{Log, Records};
pub(crate) use self::record::Header;
use self::record::Record;
use crate::error::NfsError;
use crate::random::{random_bytes, random_u64};
use crate::state_dir::state_error;

/// Maximum number of other names of a file that are known.
const OTHER_LOCATIONS_MAX: usize = 8;

/// Maximum length of a revision in the header of a table. The hash of a longer one is stored in its place: a header
/// that is longer than a record may be could not be read again.
const REVISION_MAX: usize = 1024;

/// Time after which a log that could not be written anew is tried again.
const RETRY_BACKOFF: Duration = Duration::from_secs(30);

/// Seen file, for [`Table::id_of`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) inode: Inode,
    pub(crate) fileid: u64,
    /// True if the file may have more names.
    pub(crate) is_linked: bool,
}

/// Returns the generation of a stored table. `None` if there is none, or it is damaged.
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
    by_inode: HashMap<(u64, u64), FileId>,
    /// Number of known locations in each directory, also in those that are not in the table any more.
    children: HashMap<FileId, u32>,
    /// All files in the order of their eviction. Files that were removed since are still here.
    clock: VecDeque<FileId>,
    evicted: Vec<FileId>,
    memory: Account,
    verifier: u64,
    /// Upper half of the ids that this process assigns. It is random, so that ids of records that a crash of the
    /// machine lost are not assigned again.
    epoch: u32,
    assigned: u32,
    /// The file system is an overlay, whose files keep their number, but not their time of birth, with their first
    /// change.
    copies_up: bool,
    log: Log,
    /// Time before which the log is not written anew, because that has failed.
    retry_at: Option<Instant>,
}

impl Table {
    /// Opens the table of an export, or makes a new one if there is none, it is damaged, or it is that of another
    /// directory.
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
            // Nothing is lost with it as long as the server runs, and it is tried again.
            tracing::warn!(error = crate::error::chain(&error), "failed to update NFS file handles");
        }
        Ok(table)
    }

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

    /// Applies the records of the log. Files for which there is no memory are evicted, so the log may have more than
    /// was ever in a table of this size.
    fn replay(&mut self, mut records: Records) -> io::Result<()> {
        while let Some(record) = records.next()? {
            self.apply(record);
            self.make_room();
        }
        self.log.resume(&records)?;
        // A directory may have been evicted before the files below it were read.
        if !self.evicted.is_empty() {
            self.evict_unreachable();
        }
        self.evicted.clear();
        Ok(())
    }

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
        self.enter(&entry);
        self.by_inode.insert(entry.inode.key(), id);
        self.files.insert(id, entry);
        self.trim_clock();
        self.clock.push_back(id);
    }

    /// Changes a file that is in the table.
    fn change(&mut self, id: FileId, change: impl FnOnce(&mut Entry)) {
        let Some(mut entry) = self.files.remove(&id) else { return };
        self.leave(&entry);
        change(&mut entry);
        self.enter(&entry);
        self.files.insert(id, entry);
    }

    fn remove(&mut self, id: FileId) {
        let Some(entry) = self.files.remove(&id) else { return };
        self.leave(&entry);
        if self.by_inode.get(&entry.inode.key()) == Some(&id) {
            self.by_inode.remove(&entry.inode.key());
        }
    }

    /// Counts the memory and the locations of a file.
    fn enter(&mut self, entry: &Entry) {
        self.memory.charge(entry);
        for location in entry.locations() {
            *self.children.entry(location.parent).or_default() += 1;
        }
    }

    fn leave(&mut self, entry: &Entry) {
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

    /// Changes the write verifier if the machine has been started anew since: what was not synced is lost then.
    fn set_boot(&mut self, boot_id: [u8; 16]) {
        if self.verifier == 0 || self.header.boot_id != boot_id {
            self.header.boot_id = boot_id;
            self.verifier = random_u64();
            // If it is not stored, the next server finds another boot id and does the same.
            self.log.append(&self.verifier_record());
        }
    }

    /// Changes the write verifier, because unstable data may have been lost.
    pub(crate) fn change_verifier(&mut self) {
        self.verifier = random_u64();
        // With the former one, the next server would tell clients that what was lost is safe.
        self.log.append_required(&self.verifier_record());
    }

    fn verifier_record(&self) -> Record {
        Record::Verifier { boot_id: self.header.boot_id, verifier: self.verifier }
    }

    /// Write verifier: equal as long as no unstable data can have been lost.
    pub(crate) fn verifier(&self) -> u64 {
        self.verifier
    }

    /// Random number of this state of the export. Handles of another are stale.
    pub(crate) fn generation(&self) -> u64 {
        self.header.generation
    }

    /// Id that will be assigned next, for [`is_older`](Self::is_older).
    pub(crate) fn next_unassigned(&self) -> FileId {
        FileId((u64::from(self.epoch) << 32) | (u64::from(self.assigned) + 1))
    }

    /// Returns true if an id was assigned before this one was the next.
    pub(crate) fn is_older(&self, id: FileId, next: FileId) -> bool {
        id.0 >> 32 != next.0 >> 32 || id < next
    }

    /// Number of files.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns a file, which counts as used. The root is not in the table.
    pub(crate) fn get(&self, id: FileId) -> Option<&Entry> {
        self.files.get(&id).inspect(|entry| entry.rounds.set(ROUNDS))
    }

    /// Returns true if an inode is that of the entry.
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

    /// Returns true if a file with this device and inode number is known, but not at this location. `parent` is `None`
    /// for a directory that has no id.
    pub(crate) fn is_elsewhere(&self, key: (u64, u64), parent: Option<FileId>, name: &CStr) -> bool {
        let Some(entry) = self.by_inode.get(&key).and_then(|id| self.files.get(id)) else { return false };
        let is_here = |it: &Location| parent.is_some_and(|parent| it.is(parent, name));
        !entry.locations().any(is_here)
    }

    /// Returns the id of a file that was seen at a location, and the inode number that clients see. A new file
    /// gets an id; one that was moved keeps it.
    pub(crate) fn id_of(&mut self, parent: FileId, name: &CStr, seen: Seen) -> (FileId, u64) {
        match self.by_inode.get(&seen.inode.key()).copied() {
            Some(id) => match self.files.get(&id) {
                Some(entry) if self.is_same(entry.inode, &seen.inode) => {
                    let fileid = entry.fileid;
                    self.seen_at(id, parent, name, seen);
                    (id, fileid)
                }
                // The number belongs to another file now, so the old file is gone.
                _ => {
                    self.forget(id);
                    self.add(parent, name, seen)
                }
            },
            None => self.add(parent, name, seen),
        }
    }

    fn add(&mut self, parent: FileId, name: &CStr, seen: Seen) -> (FileId, u64) {
        let id = self.next_id();
        let location = Location { parent, name: Arc::from(name) };
        let entry = Entry::new(seen.inode, seen.fileid, Some(location));
        // What is used again after it was found is kept for longer.
        entry.rounds.set(ROUNDS - 1);
        self.insert(id, entry);
        self.write_entry(id);
        self.make_room();
        (id, seen.fileid)
    }

    fn next_id(&mut self) -> FileId {
        self.assigned = self.assigned.wrapping_add(1);
        if self.assigned == 0 {
            self.epoch = u32::from_le_bytes(random_bytes()).max(1);
        }
        FileId((u64::from(self.epoch) << 32) | u64::from(self.assigned))
    }

    fn seen_at(&mut self, id: FileId, parent: FileId, name: &CStr, seen: Seen) {
        let Some(entry) = self.files.get(&id) else { return };
        entry.rounds.set(ROUNDS);
        let is_known = entry.locations().any(|it| it.is(parent, name));
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

    /// Records that a client moved a file.
    pub(crate) fn moved(&mut self, inode: &Inode, from: (FileId, &CStr), to: (FileId, &CStr)) {
        let Some(id) = self.find(inode) else { return };
        let target = Location { parent: to.0, name: Arc::from(to.1) };
        let is_source = |it: &Location| it.is(from.0, from.1);
        self.change(id, |entry| {
            entry.others.retain(|it| !is_source(it) && *it != target);
            match &entry.location {
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

    /// Records that a name of a file was removed. With `was_last` the file is gone.
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

    /// Forgets a file: its handles are stale.
    pub(crate) fn forget(&mut self, id: FileId) {
        if self.files.contains_key(&id) {
            self.remove(id);
            self.log.append(&Record::Forgotten { id });
        }
    }

    fn write_entry(&mut self, id: FileId) {
        let Some(entry) = self.files.get(&id) else { return };
        for record in records_of(id, entry) {
            self.log.append(&record);
        }
    }

    /// Writes all changes since the last call to the log. They survive the end of this process then. After a failure,
    /// changes are kept in memory alone until [`maintain`](Self::maintain) could write all of the table.
    pub(crate) fn flush(&mut self) -> Result<(), NfsError> {
        if self.log.has_pending() { self.log.flush().map_err(state_error(self.log.path())) } else { Ok(()) }
    }

    /// Gives back memory, and writes the log anew if most of it is obsolete or it was given up. Returns true if it was
    /// written anew. Call it now and then on a thread that acts as the server itself: nobody else may write to the
    /// directory of the log.
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

    /// Writes a new log with the present files alone.
    fn compact(&mut self) -> Result<(), NfsError> {
        // In the order of the clock, which the next server goes on with.
        let files = self.clock.iter().filter_map(|id| Some((id, self.files.get(id)?)));
        let files = files.flat_map(|(id, entry)| records_of(*id, entry));
        let records = std::iter::once(self.verifier_record()).chain(files);
        let path = self.log.path().to_owned();
        self.log = Log::create(&path, &self.header, records).map_err(state_error(&path))?;
        Ok(())
    }
}

/// Returns a revision as the header of a table has it.
fn stored_revision(revision: &str) -> Cow<'_, str> {
    if revision.len() <= REVISION_MAX {
        return Cow::Borrowed(revision);
    }
    Cow::Owned(format!("blake3:{}", blake3::hash(revision.as_bytes())))
}

fn records_of(id: FileId, entry: &Entry) -> impl Iterator<Item = Record> {
    let file =
        Record::File { id, inode: entry.inode, fileid: entry.fileid, location: entry.location.clone() };
    let others = entry.others.clone().into_iter().map(move |location| Record::OtherLocation { id, location });
    std::iter::once(file).chain(others)
}

#[cfg(test)]
mod tests;
