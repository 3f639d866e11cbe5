//! Format files: the version of a store's layout.
//!
//! `format` is one line of text for people and other programs. `format.copy` repeats it with a checksum, so
//! that a damaged byte in either file is not mistaken for another version.

use std::fs;
use std::path::Path;

use crate::error::{IoContext, Result, StoreError};
use crate::file_ops::replace_file;
use crate::pack::{Packs, sync_directory};

/// Highest version of the on-disk format that this program supports.
pub const FORMAT: u32 = 2;
/// Version of a new store.
const INITIAL_VERSION: u32 = 1;
/// Version of a store in which a snapshot has the root filesystem of a sandbox
/// ([`SnapshotRoot`](crate::SnapshotRoot)). Everything else is as in version 1.
pub(crate) const WITH_ROOT_FILESYSTEMS: u32 = 2;
/// Text of a format file before the version.
const LINE_PREFIX: &str = "elevo-workspace store ";
const FILE_NAME: &str = "format";
pub(crate) const COPY_FILE_NAME: &str = "format.copy";

/// Returns true if `path` has a format file.
pub(crate) fn exists(path: &Path) -> bool {
    path.join(FILE_NAME).exists()
}

/// Writes the files of a new store.
pub(crate) fn create(path: &Path) -> Result<()> {
    write(path, INITIAL_VERSION)
}

/// Writes both files, `format` last: a directory with the file `format` is a complete store. The copy takes precedence,
/// so a new version is in effect as soon as the copy is written.
pub(crate) fn write(path: &Path, version: u32) -> Result<()> {
    replace_file(&path.join(COPY_FILE_NAME), copy_line(version).as_bytes())?;
    replace_file(&path.join(FILE_NAME), line(version).as_bytes())?;
    sync_directory(path)
}

/// Returns the version of the store at `path`. Fails unless it is a store in a supported version.
pub(crate) fn check(path: &Path) -> Result<u32> {
    let file = path.join(FILE_NAME);
    let text = match fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(StoreError::NotAStore { path: path.to_owned() });
        }
        other => other.context("read", &file)?,
    };
    // The copy has a checksum: if it is intact, it is right.
    let version = read_copy(path).or_else(|| version_of(&text)).or_else(|| version_of_packs(path));
    match version {
        Some(version @ INITIAL_VERSION..=FORMAT) => Ok(version),
        Some(found) => Err(StoreError::UnsupportedFormat { path: path.to_owned(), found, supported: FORMAT }),
        None => Err(StoreError::NotAStore { path: path.to_owned() }),
    }
}

/// Returns descriptions of the damage of the format files. The store must have been opened before.
pub(crate) fn problems(path: &Path) -> Vec<String> {
    let Ok(version) = check(path) else { return vec!["the format of the store is unknown".to_owned()] };
    let differs = |name: &str, expected: &str| match fs::read(path.join(name)) {
        // A store that was created without a copy gets one when it is opened for writing.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && name == COPY_FILE_NAME => false,
        Err(_) => true,
        Ok(text) if name == FILE_NAME && is_being_raised(&text, version) => false,
        Ok(text) => text != expected.as_bytes(),
    };
    [(FILE_NAME, line(version)), (COPY_FILE_NAME, copy_line(version))]
        .into_iter()
        .filter(|(name, expected)| differs(name, expected))
        .map(|(name, _)| format!("the file `{name}` of the store is damaged"))
        .collect()
}

/// Rewrites the files if one of them is damaged or missing. The version must be checked before.
pub(crate) fn repair(path: &Path, version: u32) -> Result<()> {
    if path.join(COPY_FILE_NAME).exists() && problems(path).is_empty() {
        Ok(())
    } else {
        write(path, version)
    }
}

/// Completes the files of a store that was created without a copy, or whose version was being raised when the
/// process was killed. Failures are ignored, because the store works without the completed files.
pub(crate) fn complete(path: &Path, version: u32) {
    if !path.join(COPY_FILE_NAME).exists() {
        drop(replace_file(&path.join(COPY_FILE_NAME), copy_line(version).as_bytes()));
    }
    if fs::read(path.join(FILE_NAME)).is_ok_and(|text| is_being_raised(&text, version)) {
        drop(replace_file(&path.join(FILE_NAME), line(version).as_bytes()));
    }
}

/// Returns true if `text`, the content of `format`, is valid but has an older version than `version`, that of the copy:
/// the version is being raised, or the process was killed meanwhile.
fn is_being_raised(text: &[u8], version: u32) -> bool {
    (INITIAL_VERSION..version).any(|before| text == line(before).as_bytes())
}

fn line(version: u32) -> String {
    format!("{LINE_PREFIX}{version}\n")
}

fn copy_line(version: u32) -> String {
    let line = line(version);
    format!("{} {:08x}\n", line.trim_end(), crc32fast::hash(line.as_bytes()))
}

fn version_of(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.strip_prefix(LINE_PREFIX)?.trim_end().parse().ok()
}

/// Returns the version in the copy, if it is intact.
fn read_copy(path: &Path) -> Option<u32> {
    let text = fs::read_to_string(path.join(COPY_FILE_NAME)).ok()?;
    let version = version_of(text.trim_end().rsplit_once(' ')?.0.as_bytes())?;
    (text == copy_line(version)).then_some(version)
}

/// Derives the version of the layout from the packs (the files with all objects and commits), whose magic bytes contain
/// a version of their own. That one has never changed, so this assumes the initial version of the layout. A commit of a
/// root filesystem, or a rebuild of the index that finds one, raises it.
fn version_of_packs(path: &Path) -> Option<u32> {
    let packs = Packs::new(path.join("packs"));
    packs.list().ok()?.iter().any(|pack| packs.has_intact_header(*pack)).then_some(INITIAL_VERSION)
}
