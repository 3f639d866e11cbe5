//! Read-ahead across the files of a directory.
//!
//! Programs that search a tree read the files of each directory in the order of its listing. The first read of a
//! file costs a request, which takes longer than the read of a small file on disk. When the files of a directory
//! are read in order, a thread stores the content of the next ones, a **batch**, in the kernel's page cache.
//!
//! The kernel sends no request for content that it has, so the position of the reader is not known. Therefore one
//! file in the middle of each batch is not stored, the **marker**: a request for it schedules the next batch.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;

use crate::chunks::Reader;
use crate::inode::{Body, Inode};
use crate::table::InodeTable;

/// Size of the largest file that is stored, in bytes. The kernel itself reads larger files ahead.
const FILE_MAX: u64 = 128 << 10;
/// Number of files in the first batch of a directory, unless earlier batches were read.
const BATCH_MIN: usize = 4;
const BATCH_MAX: usize = 128;
/// Minimum of [`Directories::first_batch`] at which a search of the tree is assumed to be in progress. Then the first
/// batch of a directory is stored as soon as the directory has been listed, before any of its files is read.
const BATCH_OF_SEARCH: usize = 16;
/// Maximum number of files of the listings that are remembered; the oldest listings are dropped.
const FILES_MAX: usize = 1 << 16;
/// Maximum number of listings that are remembered. It limits those that were not read to their end.
const DIRECTORIES_MAX: usize = 1 << 16;
/// Maximum number of batches in the queue; further ones are not stored.
const QUEUE_MAX: usize = 16;

/// Read-ahead of a lazy mount.
pub(crate) struct ReadAhead {
    directories: Arc<Mutex<Directories>>,
    /// Queue of the thread, which ends when this is dropped.
    queue: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<()>>,
}

/// Files of a directory to store in the page cache.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    directory: u64,
    /// Indexes in the listing of the directory.
    files: Range<usize>,
    /// Index of the file that is not stored.
    marker: usize,
}

impl ReadAhead {
    pub(crate) fn start(
        table: Arc<InodeTable>,
        reader: Arc<Reader>,
        kernel_notifier: Arc<OnceLock<Notifier>>,
    ) -> std::io::Result<Self> {
        let directories = Arc::new(Mutex::new(Directories::default()));
        let (queue, batches) = sync_channel(QUEUE_MAX);
        let store = BatchStore { directories: Arc::clone(&directories), table, reader, kernel_notifier };
        let thread = std::thread::Builder::new()
            .name("file-read-ahead".to_owned())
            .spawn(move || store.store_all(&batches))?;
        Ok(Self { directories, queue: Some(queue), thread: Some(thread) })
    }

    /// Records a part of a listing: its range of offsets, empty at the end of the listing, and the inode numbers of
    /// its small files.
    pub(crate) fn record_listing(&self, directory: u64, part: Range<u64>, files: &[u64]) {
        let batch = self.directories.lock().record_listing(directory, part, files);
        self.schedule(batch);
    }

    /// Records a request to read a file from its start.
    pub(crate) fn record_read(&self, file: u64) {
        let batch = self.directories.lock().record_read(file);
        self.schedule(batch);
    }

    fn schedule(&self, batch: Option<Batch>) {
        if let (Some(queue), Some(batch)) = (&self.queue, batch) {
            // A full queue means that the thread is slower than the readers, who then cause requests.
            drop(queue.try_send(batch));
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed, and only disables read-ahead.
            drop(thread.join());
        }
    }
}

/// Returns true if the file may be stored ahead.
pub(crate) fn can_read_ahead(inode: &Inode) -> bool {
    matches!(&inode.body, Body::File { content, .. } if (1..=FILE_MAX).contains(&content.size()))
}

/// State of the read-ahead thread, which stores batches in the kernel's page cache.
struct BatchStore {
    directories: Arc<Mutex<Directories>>,
    table: Arc<InodeTable>,
    reader: Arc<Reader>,
    kernel_notifier: Arc<OnceLock<Notifier>>,
}

impl BatchStore {
    fn store_all(&self, batches: &Receiver<Batch>) {
        for batch in batches {
            for index in batch.files.clone().filter(|index| *index != batch.marker) {
                let file = self.directories.lock().unread_file(batch.directory, index);
                if let Some(file) = file {
                    self.store(file);
                }
            }
        }
    }

    fn store(&self, ino: u64) {
        let Some(inode) = self.table.get(ino) else { return };
        let (Body::File { content, .. }, Some(kernel_notifier)) = (&inode.body, self.kernel_notifier.get())
        else {
            return;
        };
        // On an error the reader causes a request, which reports it.
        if let Ok(bytes) = self.reader.read(content, 0, content.size()) {
            drop(kernel_notifier.store(INodeNo(ino), 0, &bytes));
        }
    }
}

/// Directories that were listed last.
#[derive(Debug)]
struct Directories {
    by_ino: HashMap<u64, Directory>,
    /// Inode numbers of the directories, the first listed one first.
    order: VecDeque<u64>,
    /// Directory of each file, and its index in the listing.
    by_file: HashMap<u64, (u64, usize)>,
    /// Size of the first batch of a directory. It grows when batches are read, and shrinks when they are not.
    first_batch: usize,
}

impl Default for Directories {
    fn default() -> Self {
        Self {
            by_ino: HashMap::new(),
            order: VecDeque::new(),
            by_file: HashMap::new(),
            first_batch: BATCH_MIN,
        }
    }
}

impl Directories {
    fn record_listing(&mut self, ino: u64, part: Range<u64>, files: &[u64]) -> Option<Batch> {
        if part.start == 0 {
            self.remove(ino);
            self.order.push_back(ino);
            self.by_ino.insert(ino, Directory::default());
        }
        let directory = self.by_ino.get_mut(&ino).filter(|one| one.next_offset == part.start)?;
        directory.next_offset = part.end;
        let is_end = part.is_empty();
        let room = FILES_MAX.saturating_sub(directory.files.len());
        for file in files.iter().take(room) {
            self.by_file.insert(*file, (ino, directory.files.len()));
            directory.files.push(*file);
        }
        // The first file is not stored: the request for it shows that the directory is read.
        let batch = (is_end && self.first_batch >= BATCH_OF_SEARCH)
            .then(|| directory.next_batch(ino, 1, self.first_batch))
            .flatten();
        if is_end && directory.files.is_empty() {
            self.remove(ino);
        }
        while self.by_file.len() > FILES_MAX || self.by_ino.len() > DIRECTORIES_MAX {
            let oldest = self.order.pop_front()?;
            self.forget(oldest);
        }
        batch
    }

    fn remove(&mut self, ino: u64) {
        if self.by_ino.contains_key(&ino) {
            self.order.retain(|other| *other != ino);
            self.forget(ino);
        }
    }

    /// Removes a directory that is no longer in `order`.
    fn forget(&mut self, ino: u64) {
        let Some(directory) = self.by_ino.remove(&ino) else { return };
        for (index, file) in directory.files.iter().enumerate() {
            if self.by_file.get(file) == Some(&(ino, index)) {
                self.by_file.remove(file);
            }
        }
        // The last batch was not read up to its marker.
        if directory.marker.is_some_and(|marker| marker >= directory.read) {
            self.first_batch = (self.first_batch / 2).max(BATCH_MIN);
        }
    }

    fn record_read(&mut self, file: u64) -> Option<Batch> {
        let (ino, index) = *self.by_file.get(&file)?;
        let directory = self.by_ino.get_mut(&ino)?;
        if directory.marker == Some(index) {
            self.first_batch = (self.first_batch * 2).min(BATCH_MAX);
        }
        directory.record_read(ino, index, self.first_batch)
    }

    /// Returns the file at an index of a listing, unless it was read.
    fn unread_file(&self, directory: u64, index: usize) -> Option<u64> {
        let directory = self.by_ino.get(&directory)?;
        directory.files.get(index).copied().filter(|_| index >= directory.read)
    }
}

/// Small files of a directory in the order of its listing, and the position of its reader.
#[derive(Debug, Default)]
struct Directory {
    files: Vec<u64>,
    /// Offset of the part of the listing that comes next.
    next_offset: u64,
    /// Index after the last file of the last batch.
    scheduled: usize,
    /// Size of the last batch.
    batch: usize,
    /// Index of the file of the last batch that is not stored.
    marker: Option<usize>,
    /// Index after the file that was requested last.
    read: usize,
}

impl Directory {
    fn record_read(&mut self, ino: u64, index: usize, first_batch: usize) -> Option<Batch> {
        let is_next = (self.read..=self.scheduled.max(self.read)).contains(&index);
        self.read = index + 1;
        if self.marker == Some(index) {
            return self.next_batch(ino, self.scheduled, self.batch * 2);
        }
        // An index below `scheduled` belongs to the last batch: the reader requested it before the thread had stored it. No
        // new batch is needed; the thread skips files that were read.
        (is_next && index >= self.scheduled)
            .then(|| self.next_batch(ino, index + 1, self.batch.max(first_batch)))
            .flatten()
    }

    /// Returns a batch of about `size` files from the index `from` on, or from the end of the last batch if that is
    /// later; `None` if there are no more files.
    fn next_batch(&mut self, ino: u64, from: usize, size: usize) -> Option<Batch> {
        let from = from.max(self.scheduled);
        let size = size.clamp(BATCH_MIN, BATCH_MAX);
        let files = from..(from + size).min(self.files.len());
        if files.is_empty() {
            return None;
        }
        let marker = files.start + files.len() / 2;
        (self.scheduled, self.batch, self.marker) = (files.end, size, Some(marker));
        Some(Batch { directory: ino, files, marker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: u64 = 7;

    /// Files of the test directory have the numbers from 100 on.
    fn listed(files: u64) -> Directories {
        let mut directories = Directories::default();
        let numbers: Vec<u64> = (100..100 + files).collect();
        assert_eq!(directories.record_listing(DIRECTORY, 0..files + 2, &numbers), None);
        assert_eq!(directories.record_listing(DIRECTORY, files + 2..files + 2, &[]), None);
        directories
    }

    fn batch(files: Range<usize>, marker: usize) -> Option<Batch> {
        Some(Batch { directory: DIRECTORY, files, marker })
    }

    #[test]
    fn batches_grow_while_their_markers_are_read() {
        let mut directories = listed(100);
        assert_eq!(directories.record_read(100), batch(1..5, 3));
        assert_eq!(directories.record_read(103), batch(5..13, 9));
        assert_eq!(directories.record_read(109), batch(13..29, 21));
        assert_eq!(directories.record_read(121), batch(29..61, 45));
        assert_eq!(directories.record_read(145), batch(61..100, 80));
        assert_eq!(directories.record_read(180), None);
    }

    #[test]
    fn listings_without_small_files_are_not_remembered() {
        let mut directories = listed(1);
        for ino in 1_000..1_010 {
            directories.record_listing(ino, 0..5, &[]);
            directories.record_listing(ino, 5..5, &[]);
        }
        assert_eq!((directories.by_ino.len(), directories.order.len()), (1, 1));
        // Nor are too many that were not read to their end.
        for ino in 0..DIRECTORIES_MAX as u64 {
            directories.record_listing(10_000 + ino, 0..5, &[]);
        }
        assert_eq!((directories.by_ino.len(), directories.order.len()), (DIRECTORIES_MAX, DIRECTORIES_MAX));
        assert!(!directories.by_ino.contains_key(&DIRECTORY) && directories.by_file.is_empty());
    }

    #[test]
    fn files_read_in_any_order_cause_no_batches() {
        let mut directories = listed(100);
        for file in [150, 120, 190, 110, 130] {
            assert_eq!(directories.record_read(file), None, "{file}");
        }
        assert_eq!(directories.record_read(131), batch(32..36, 34), "in order again");
    }

    #[test]
    fn files_that_were_read_are_not_stored() {
        let mut directories = listed(100);
        assert_eq!(directories.record_read(100), batch(1..5, 3));
        assert_eq!(directories.record_read(102), None, "the reader is faster than the thread");
        assert_eq!(directories.unread_file(DIRECTORY, 2), None);
        assert_eq!(directories.unread_file(DIRECTORY, 4), Some(104));
    }

    #[test]
    fn directories_of_a_search_are_stored_when_they_have_been_listed() {
        let mut directories = listed(100);
        for file in [100, 103, 109] {
            assert!(directories.record_read(file).is_some());
        }
        assert_eq!(directories.first_batch, BATCH_OF_SEARCH);
        let list = |directories: &mut Directories, ino: u64| {
            assert_eq!(directories.record_listing(ino, 0..12, &[ino * 1000, ino * 1000 + 1]), None);
            directories.record_listing(ino, 12..12, &[])
        };
        let first = list(&mut directories, 8);
        assert_eq!(first, Some(Batch { directory: 8, files: 1..2, marker: 1 }));
        // The search has ended: nobody reads the files of the directories that are listed.
        directories.remove(8);
        assert_eq!(list(&mut directories, 9), None);
    }

    #[test]
    fn old_listings_are_dropped() {
        let mut directories = Directories::default();
        let count = FILES_MAX as u64 / 4;
        for ino in 1..=8 {
            let files: Vec<u64> = (ino * 1_000_000..).take(count as usize).collect();
            directories.record_listing(ino, 0..count, &files);
        }
        assert!(directories.by_file.len() <= FILES_MAX);
        assert_eq!(directories.order, [5, 6, 7, 8]);
        let all: Vec<u64> = (100..100 + 2 * FILES_MAX as u64).collect();
        directories.record_listing(9, 0..1, &all);
        assert_eq!(directories.by_file.len(), FILES_MAX);
        assert_eq!(directories.order, [9]);
    }

    #[test]
    fn listing_that_is_read_twice_at_once_is_recorded_once() {
        let mut directories = Directories::default();
        directories.record_listing(1, 0..3, &[100, 101]);
        directories.record_listing(1, 3..5, &[102, 103]);
        directories.record_listing(1, 3..5, &[102, 103]);
        assert_eq!(directories.by_ino[&1].files, [100, 101, 102, 103]);
    }
}
