//! Context of every command: the store, the output, the progress.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use tempfile::TempDir;
use workspace_state::{SnapshotId, Store};

use crate::args::Global;
use crate::error::{CommandError, Result, io_hint};
use crate::output::Output;
use crate::progress::Bars;

/// Default path of the store below the XDG data directory.
const DEFAULT_STORE: &str = "elevo-workspace/store";

/// Store, output and progress of a command.
pub(crate) struct Context {
    store: Option<PathBuf>,
    pub(crate) output: Output,
    pub(crate) progress: Bars,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        Self { store: global.store, output: Output::new(global.json), progress: Bars::new() }
    }

    /// Opens the store, which must exist.
    pub(crate) fn store(&self) -> Result<Store> {
        Ok(Store::open(self.existing_path()?)?)
    }

    /// Rebuilds the index of the store, which must exist, and opens the store.
    pub(crate) fn rebuild_and_open_store(&self) -> Result<Store> {
        Ok(Store::rebuild_index(self.existing_path()?)?)
    }

    /// Opens the store, or creates it.
    pub(crate) fn store_or_create(&self) -> Result<Store> {
        Ok(Store::open_or_create(self.path()?)?)
    }

    /// Opens the store, or an empty one if it does not exist. The empty one is in the temporary directory that is
    /// returned, and removed with it.
    pub(crate) fn store_or_temporary(&self) -> Result<(Store, Option<TempDir>)> {
        if self.path()?.exists() {
            return Ok((self.store()?, None));
        }
        let directory = tempfile::tempdir().map_err(|error| {
            CommandError::failed(format!("cannot create a temporary directory: {error}"))
                .hint(io_hint(&error))
        })?;
        Ok((Store::open_or_create(directory.path().join("store"))?, Some(directory)))
    }

    /// Returns the path of the store, which may not exist.
    #[cfg(target_os = "linux")]
    pub(crate) fn store_path(&self) -> Option<PathBuf> {
        self.path().ok()
    }

    fn existing_path(&self) -> Result<PathBuf> {
        let path = self.path()?;
        if path.exists() {
            return Ok(path);
        }
        Err(CommandError::failed(format!("there is no store at {}", path.display()))
            .hint("`workspace snapshot DIR` creates it with its first snapshot")
            .hint("`--store DIR` or WORKSPACE_STORE selects another store"))
    }

    fn path(&self) -> Result<PathBuf> {
        let from_environment = || env::var_os("WORKSPACE_STORE").filter(|path| !path.is_empty());
        match self.store.clone().or_else(|| from_environment().map(PathBuf::from)) {
            Some(path) => Ok(path),
            None => default_store(),
        }
    }
}

fn default_store() -> Result<PathBuf> {
    let absolute =
        |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    // The XDG base directory specification says that a relative path must be ignored.
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join(DEFAULT_STORE)).ok_or_else(|| {
        CommandError::failed("no directory for the store: neither XDG_DATA_HOME nor HOME is an absolute path")
            .hint("select a store with `--store DIR` or WORKSPACE_STORE")
    })
}

/// Names of references by target snapshot.
pub(crate) struct References(BTreeMap<SnapshotId, Vec<String>>);

impl References {
    pub(crate) fn read(store: &Store) -> Result<Self> {
        let mut names: BTreeMap<SnapshotId, Vec<String>> = BTreeMap::new();
        for (name, target) in store.references()? {
            names.entry(target).or_default().push(name);
        }
        Ok(Self(names))
    }

    /// Returns the names of the references to a snapshot.
    pub(crate) fn of(&self, snapshot: &SnapshotId) -> Vec<&str> {
        self.0.get(snapshot).map(|names| names.iter().map(String::as_str).collect()).unwrap_or_default()
    }
}
