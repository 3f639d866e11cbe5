//! Project in an ordinary directory.
//!
//! `.workspace/project.json` names the project and the sequence whose files the directory was made from, its *base*.
//! The store in `.workspace/store` has these files, so that changes are found without the server. `.workspace` never
//! enters the project. The record changes only after the files: after a crash in between, the changes of the
//! interrupted command count as those of the directory, and the next merge finds them on both sides.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use workspace_state::{
    Durability, Expect, ImportOptions, NewSnapshot, Progress, Snapshot, SnapshotId, Store, Tree, VirtualTree,
    import_tar,
};

use super::super::diff::side::SideSource;
use super::super::merge_tree::sides::{InputOpener, commit_temporarily};
use super::routes::project_path;
use crate::error::{CommandError, Result, io_hint};
use crate::remote::Client;
use crate::remote::files::download;

/// Directory of the record and the store.
const RECORD_DIRECTORY: &str = ".workspace";
const RECORD_FILE: &str = "project.json";
/// Reference of the store that protects the base from garbage collection.
const BASE_REFERENCE: &str = "base";
/// Entries of the directory that belong to it and not to the project.
const OWN_ENTRIES: [&str; 2] = [RECORD_DIRECTORY, ".git"];

/// Content of the file `project.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// URL of the server.
    pub(super) server: String,
    /// Id of the project.
    pub(super) project: String,
    /// Name that the project had.
    pub(super) name: String,
    /// Sequence of the base.
    pub(super) sequence: u64,
    /// Id of the head at that sequence, on the server; `None` for the empty project.
    pub(super) snapshot: Option<String>,
    /// Id of the base in the store of the directory.
    pub(super) base: SnapshotId,
}

/// Open directory of a project.
pub(super) struct LocalProject {
    pub(super) directory: PathBuf,
    pub(super) store: Store,
    pub(super) record: Record,
}

impl LocalProject {
    /// Creates the store of a directory, which must be empty or absent. It becomes the directory of a project with
    /// [`Self::save`].
    pub(super) fn create_store(directory: &Path) -> Result<Store> {
        let failed = |error: std::io::Error| {
            CommandError::failed(format!("cannot use {}: {error}", directory.display())).hint(io_hint(&error))
        };
        fs::create_dir_all(directory).map_err(failed)?;
        if fs::read_dir(directory).map_err(failed)?.next().is_some() {
            return Err(CommandError::failed(format!("{} is not empty", directory.display()))
                .hint("specify a new directory; after an interrupted clone, remove it first"));
        }
        fs::create_dir(directory.join(RECORD_DIRECTORY)).map_err(failed)?;
        Ok(Store::open_or_create(store_path(directory))?)
    }

    /// Opens the project of a directory or of one above it.
    pub(super) fn open(start: &Path) -> Result<Self> {
        let start = super::git::absolute(start)?;
        let record_of = |directory: &Path| directory.join(RECORD_DIRECTORY).join(RECORD_FILE);
        let found = start.ancestors().find(|directory| record_of(directory).is_file());
        let Some(directory) = found else {
            return Err(CommandError::failed(format!("{} is in no project", start.display()))
                .hint("`workspace project clone PROJECT DIR` creates the directory of a project"));
        };
        let path = record_of(directory);
        let text = fs::read(&path).map_err(|error| {
            CommandError::failed(format!("cannot read {}: {error}", path.display())).hint(io_hint(&error))
        })?;
        let record = serde_json::from_slice(&text).map_err(|error| {
            CommandError::failed(format!("{} is damaged: {error}", path.display()))
                .hint("clone the project again, and copy your changes")
        })?;
        let store = Store::open(store_path(directory))?;
        Ok(Self { directory: directory.to_owned(), store, record })
    }

    /// Opens the project of a directory for a command that changes it. Only one such command runs at a time, until the
    /// returned file is dropped.
    pub(super) fn open_locked(start: &Path) -> Result<(Self, File)> {
        let path = Self::open(start)?.directory.join(RECORD_DIRECTORY).join("lock");
        let failed = |error: std::io::Error| {
            CommandError::failed(format!("cannot lock {}: {error}", path.display())).hint(io_hint(&error))
        };
        let file = File::create(&path).map_err(failed)?;
        match file.try_lock() {
            // Read again: another command may have changed the record meanwhile.
            Ok(()) => Ok((Self::open(start)?, file)),
            Err(TryLockError::WouldBlock) => {
                Err(CommandError::failed("another command works on this directory")
                    .hint("wait until it has ended"))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Fails if the client does not use the server of the record. The record alone must not decide which server gets
    /// the key of the user: the directory may come from somebody else.
    pub(super) fn check_server(&self, client: &Client) -> Result<()> {
        let (own, used) = (&self.record.server, &client.server.url);
        if own == used {
            return Ok(());
        }
        Err(CommandError::failed(format!("this directory is of a project on {own}, not on {used}"))
            .hint(format!("if you trust that server: `--server {own}`, or WORKSPACE_SERVER")))
    }

    pub(super) fn project_path(&self) -> String {
        project_path(&self.record.project)
    }

    /// Returns the files that the directory was made from.
    pub(super) fn base(&self) -> Result<Tree> {
        Ok(Tree::of_snapshot(&self.store, &self.store.snapshot(&self.record.base)?)?)
    }

    /// Returns the files of the directory, without those that are not part of the project. Ignored files are as in the
    /// base.
    pub(super) fn files(&self, base: &Tree, progress: &dyn Progress) -> Result<Tree> {
        let opener = InputOpener { store: &self.store, use_ignore_files: true, progress };
        let tree = opener.open_with_ignored(&SideSource::Directory(self.directory.clone()), base)?;
        let mut stripped = VirtualTree::over(&tree)?;
        let mut is_changed = false;
        for name in OWN_ENTRIES {
            if tree.entry(name)?.is_some() && base.entry(name)?.is_none() {
                stripped.remove(name)?;
                is_changed = true;
            }
        }
        if is_changed { commit_temporarily(&self.store, &mut stripped) } else { Ok(tree) }
    }

    /// Makes a snapshot the base, and writes the record.
    pub(super) fn save(&mut self, record: Record) -> Result<()> {
        let (base, path) = (record.base, self.directory.join(RECORD_DIRECTORY).join(RECORD_FILE));
        self.store.set_reference(BASE_REFERENCE, Expect::Anything, base, Durability::Synced)?;
        let failed = |error: std::io::Error| {
            CommandError::failed(format!("cannot write {}: {error}", path.display())).hint(io_hint(&error))
        };
        let text = serde_json::to_vec_pretty(&record)
            .map_err(|error| CommandError::failed(format!("cannot write JSON: {error}")))?;
        let mut file =
            tempfile::NamedTempFile::new_in(self.directory.join(RECORD_DIRECTORY)).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        self.record = record;
        Ok(())
    }
}

fn store_path(directory: &Path) -> PathBuf {
    directory.join(RECORD_DIRECTORY).join("store")
}

/// Stores the files that a project has at a sequence.
pub(super) async fn fetch(
    client: &Client,
    store: &Store,
    project: &str,
    sequence: u64,
    progress: &dyn Progress,
) -> Result<Snapshot> {
    let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
    if sequence == 0 {
        return Ok(store.empty_tree()?.commit(new)?);
    }
    let failed = |error: std::io::Error| {
        CommandError::failed(format!("cannot write an archive: {error}")).hint(io_hint(&error))
    };
    let mut archive = tempfile::tempfile_in(store.path()).map_err(failed)?;
    download(client, &format!("{}/archive?at={sequence}", project_path(project)), async |data| {
        progress.advance(data.len() as u64);
        archive.write_all(data).map_err(failed)
    })
    .await?;
    std::io::Seek::rewind(&mut archive).map_err(failed)?;
    let report =
        import_tar(store, &mut archive, new, &ImportOptions::default(), &workspace_state::NoProgress)?;
    Ok(report.snapshot)
}
