//! Journal of temporary names, from which a worker removes the files that a killed worker left.
//!
//! A file that replaces another has a temporary name for a moment. The names are in a memory file that the agent
//! creates and all its workers inherit, so that the record outlives a worker that is killed in that moment. The file
//! has slots of the same size: the length of a path in 2 bytes, little-endian, and the path. The length of a free slot
//! is 0.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};

use super::path::proc_path;

/// Size of a slot in bytes: a path of the maximum length, a name, and the length of both.
const SLOT_SIZE: usize = 4_096 + 64;
/// Maximum number of names that are recorded at a time. It is usually enough for the blocking tasks of a worker
/// (`BLOCKING_TASKS_MAX`) and for written files that have not replaced their targets yet. A name beyond it is not
/// recorded.
const SLOTS_MAX: usize = 64;
/// Start of a temporary name. 16 hexadecimal digits follow.
const PREFIX: &str = ".";
/// End of a temporary name.
const SUFFIX: &str = ".tmp";

/// Journal of this worker, once it is open.
static JOURNAL: OnceLock<Journal> = OnceLock::new();

#[derive(Debug)]
struct Journal {
    /// Memory file with the slots.
    file: File,
    /// Slots in use, one bit each.
    used: Mutex<u64>,
}

/// Slot of a temporary name, which is freed when this value is dropped.
#[derive(Debug)]
pub(crate) struct RecordedName(usize);

/// Returns the memory file for the workers of this agent. The first call creates it.
pub(crate) fn file_for_workers() -> io::Result<OwnedFd> {
    static FILE: Mutex<Option<OwnedFd>> = Mutex::new(None);
    let mut file = FILE.lock();
    if let Some(file) = &*file {
        return file.try_clone();
    }
    file.insert(memfd_create("journal", MemfdFlags::CLOEXEC)?).try_clone()
}

/// Opens the journal of this worker, after removing the files that an earlier worker left. The agent passes the memory
/// file as standard output, which nothing else here uses.
pub(crate) fn open() -> io::Result<()> {
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // A worker that was not started by the agent, as in tests, has no journal.
    if file.metadata()?.is_file() {
        clean(&file)?;
        // Called once.
        drop(JOURNAL.set(Journal { file, used: Mutex::new(0) }));
    }
    Ok(())
}

/// Returns a temporary name with 64 random bits, which no other file has.
pub(crate) fn random_name() -> rustix::io::Result<Vec<u8>> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{PREFIX}{:016x}{SUFFIX}", u64::from_le_bytes(bytes)).into_bytes())
}

fn is_temporary(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Records a name in a directory, before a file gets it. `None` if that is not possible, for example because no slot is
/// free; the file is then left behind if the worker is killed.
pub(crate) fn record(directory: &OwnedFd, name: &[u8]) -> Option<RecordedName> {
    let journal = JOURNAL.get()?;
    let directory = std::fs::read_link(OsStr::from_bytes(proc_path(directory).as_bytes())).ok()?;
    let path = directory.join(OsStr::from_bytes(name));
    let path = path.as_os_str().as_bytes();
    let mut record = u16::try_from(path.len()).ok()?.to_le_bytes().to_vec();
    record.extend_from_slice(path);
    let slot = (record.len() <= SLOT_SIZE).then(|| journal.take_slot())??;
    let recorded = RecordedName(slot);
    journal.file.write_all_at(&record, offset(slot)).is_ok().then_some(recorded)
}

fn offset(slot: usize) -> u64 {
    (slot * SLOT_SIZE) as u64
}

impl Journal {
    fn take_slot(&self) -> Option<usize> {
        let mut used = self.used.lock();
        let slot = used.trailing_ones() as usize;
        (slot < SLOTS_MAX).then(|| *used |= 1 << slot).map(|()| slot)
    }

    fn free_slot(&self, slot: usize) {
        // A slot that is not cleared names a file that does not exist any more.
        drop(self.file.write_all_at(&[0; 2], offset(slot)));
        *self.used.lock() &= !(1 << slot);
    }
}

impl Drop for RecordedName {
    fn drop(&mut self) {
        if let Some(journal) = JOURNAL.get() {
            journal.free_slot(self.0);
        }
    }
}

/// Removes the files with recorded names, and clears the record.
fn clean(file: &File) -> io::Result<()> {
    for path in recorded(file)? {
        if path.file_name().is_some_and(is_temporary) {
            // Most are gone, since the worker was killed after it had renamed the file.
            drop(std::fs::remove_file(path));
        }
    }
    file.set_len(0)
}

/// Returns the recorded paths. Damaged slots are skipped: programs of the sandbox may have changed the file.
fn recorded(file: &File) -> io::Result<Vec<PathBuf>> {
    let len = file.metadata()?.len();
    let mut paths = Vec::new();
    for slot in (0..SLOTS_MAX).take_while(|slot| offset(*slot) < len) {
        let mut bytes = vec![0; SLOT_SIZE];
        let read = file.read_at(&mut bytes, offset(slot))?;
        let Some((size, path)) = bytes[..read].split_first_chunk::<2>() else { continue };
        let size = usize::from(u16::from_le_bytes(*size));
        if let Some(path) = path.get(..size).filter(|path| !path.is_empty()) {
            paths.push(Path::new(OsStr::from_bytes(path)).to_owned());
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_recorded_temporary_names_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let name = |name: &[u8]| directory.path().join(OsStr::from_bytes(name));
        let (left, unrecorded) = (random_name().unwrap(), random_name().unwrap());
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let used = Mutex::new(0);
        let journal = Journal { file: file.try_clone().unwrap(), used };
        for (slot, one) in [(0, &left[..]), (1, b"important"), (2, b"released")] {
            assert_eq!(journal.take_slot(), Some(slot));
            std::fs::write(name(one), "x").unwrap();
            let path = name(one).into_os_string().into_encoded_bytes();
            let record = [&u16::try_from(path.len()).unwrap().to_le_bytes()[..], &path].concat();
            file.write_all_at(&record, offset(slot)).unwrap();
        }
        std::fs::write(name(&unrecorded), "x").unwrap();
        journal.free_slot(2);
        assert_eq!(journal.take_slot(), Some(2), "it is free again");
        clean(&file).unwrap();
        assert!(!name(&left).exists());
        for kept in [&b"important"[..], b"released", &unrecorded] {
            assert!(name(kept).exists(), "{}", String::from_utf8_lossy(kept));
        }
        assert_eq!(recorded(&file).unwrap(), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn a_damaged_record_names_nothing() {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(&[0xff; 3], 0).unwrap();
        assert!(recorded(&file).unwrap().is_empty());
        file.write_all_at(&u16::MAX.to_le_bytes(), offset(1)).unwrap();
        file.set_len(offset(SLOTS_MAX + 5)).unwrap();
        assert!(recorded(&file).unwrap().is_empty());
    }

    #[test]
    fn no_more_names_than_slots_are_recorded() {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let journal = Journal { file, used: Mutex::new(0) };
        assert_eq!((0..SLOTS_MAX + 1).filter_map(|_| journal.take_slot()).count(), SLOTS_MAX);
    }
}
