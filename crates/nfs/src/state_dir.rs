//! Directory with the state of a server, which survives a restart. No other program writes to it.
//!
//! ```text
//! key             32 random bytes: key of the MAC in all file handles
//! port            free port that the server bound last
//! tables/NAME     table of the export NAME: maps the ids in file handles to names, see [`Table`](crate::table::Table)
//! tables/NAME.new incomplete next version of the table, which is renamed to NAME when it is complete
//! ```

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::NfsError;
use crate::export::is_name;
use crate::random::random_bytes;

/// Length of the key in bytes.
pub(crate) const KEY_LEN: usize = 32;

/// Suffix of the name of an incomplete file that will replace another.
const REPLACEMENT_SUFFIX: &str = ".new";

/// Directory with the state of a server.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Opens the directory, or creates it.
    pub(crate) fn open(path: &Path) -> Result<Self, NfsError> {
        let tables = path.join("tables");
        DirBuilder::new().recursive(true).mode(0o700).create(&tables).map_err(state_error(&tables))?;
        Ok(Self { path: path.to_owned() })
    }

    /// Reads the key of file handles. Creates a random one if there is none.
    pub(crate) fn key(&self) -> Result<[u8; KEY_LEN], NfsError> {
        let path = self.path.join("key");
        match read_key(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let key = random_bytes::<KEY_LEN>();
                replace_file(&path, &key).map_err(state_error(&path))?;
                // The directory of the state may be new, too.
                sync_directory_of(&self.path).map_err(state_error(&self.path))?;
                Ok(key)
            }
            result => result.map_err(state_error(&path)),
        }
    }

    /// Returns the free port that a server bound last; `None` if none was recorded.
    pub(crate) fn last_port(&self) -> Option<u16> {
        fs::read_to_string(self.path.join("port")).ok()?.trim().parse().ok().filter(|port| *port != 0)
    }

    /// Records the free port that was bound.
    pub(crate) fn set_last_port(&self, port: u16) -> Result<(), NfsError> {
        let path = self.path.join("port");
        replace_file(&path, format!("{port}\n").as_bytes()).map_err(state_error(&path))
    }

    /// Returns the path of the table of an export. The caller has checked the name.
    pub(crate) fn table(&self, export: &str) -> PathBuf {
        self.path.join("tables").join(export)
    }

    /// Removes the table of an export and an incomplete version of it. Does nothing if there are none.
    pub(crate) fn remove_table(&self, export: &str) -> Result<(), NfsError> {
        self.remove_incomplete_table(export)?;
        remove_file(&self.table(export))
    }

    /// Removes the incomplete version of a table, which a server leaves when it ends while it rewrites the table.
    pub(crate) fn remove_incomplete_table(&self, export: &str) -> Result<(), NfsError> {
        remove_file(&replacement(&self.table(export)))
    }

    /// Returns the names of the exports that have a table, or an incomplete one.
    pub(crate) fn stored_exports(&self) -> Result<BTreeSet<String>, NfsError> {
        let path = self.path.join("tables");
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&path).map_err(state_error(&path))? {
            let entry = entry.map_err(state_error(&path))?;
            let name = entry.file_name().into_string().unwrap_or_default();
            let name = name.strip_suffix(REPLACEMENT_SUFFIX).unwrap_or(&name);
            if is_name(name) {
                names.insert(name.to_owned());
            }
        }
        Ok(names)
    }
}

fn remove_file(path: &Path) -> Result<(), NfsError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(state_error(path)(error)),
        _ => Ok(()),
    }
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_LEN]> {
    let mut key = [0; KEY_LEN];
    File::open(path)?.read_exact(&mut key)?;
    Ok(key)
}

/// Replaces a small file atomically and durably: the content is synced before the rename, and the directory after it.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = replacement(path);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_directory_of(path)
}

/// Syncs the directory that has the entry of a file, so that the entry survives a crash of the machine.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Returns the path of the incomplete version of a file, which is renamed to the file when it is complete.
pub(crate) fn replacement(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(REPLACEMENT_SUFFIX);
    name.into()
}

/// Returns a function that adds a path to the error of a system call.
pub(crate) fn state_error(path: &Path) -> impl Fn(io::Error) -> NfsError {
    let path = path.to_owned();
    move |source| NfsError::State { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_created_once() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(&directory.path().join("nfs")).unwrap();
        let key = state.key().unwrap();
        assert_eq!(state.key().unwrap(), key);
        let other = StateDir::open(&directory.path().join("other")).unwrap();
        assert_ne!(other.key().unwrap(), key);
    }

    #[test]
    fn a_short_key_is_an_error_and_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        fs::write(directory.path().join("key"), b"short").unwrap();
        assert!(matches!(state.key(), Err(NfsError::State { .. })));
        assert_eq!(fs::read(directory.path().join("key")).unwrap(), b"short");
    }

    #[test]
    fn the_last_port_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        assert_eq!(state.last_port(), None);
        state.set_last_port(40_123).unwrap();
        assert_eq!(StateDir::open(directory.path()).unwrap().last_port(), Some(40_123));
    }
}
