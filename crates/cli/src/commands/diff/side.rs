//! Trees that are compared or merged. Each is a snapshot or a directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use workspace_state::{
    Durability, NewSnapshot, Progress, Snapshot, SnapshotId, SnapshotOptions, Store, Tree, snapshot_directory,
};

use super::super::report::warn_skipped;
use super::super::snapshot::{has_unreadable_entries, skipped};
use crate::error::{CommandError, Result};
use crate::names;

/// Snapshot or directory to compare or merge.
pub(crate) enum SideSource {
    Snapshot(Snapshot),
    Directory(PathBuf),
}

impl SideSource {
    /// Returns the snapshot; `None` for a directory.
    pub(crate) fn snapshot(&self) -> Option<SnapshotId> {
        match self {
            Self::Snapshot(snapshot) => Some(snapshot.id),
            Self::Directory(_) => None,
        }
    }

    /// Resolves a name. A snapshot wins over a directory of the same name; `./NAME` can only be a directory.
    pub(crate) fn resolve(store: &Store, typed: &OsStr) -> Result<Self> {
        if let Some(text) = typed.to_str()
            && let Some(snapshot) = names::find_snapshot(store, text)?
        {
            return Ok(Self::Snapshot(snapshot));
        }
        let path = Path::new(typed);
        if path.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        Err(CommandError::failed(format!("`{}` is neither a snapshot nor a directory", path.display()))
            .hint("`workspace log` lists the snapshots of this store, `workspace refs` its references"))
    }
}

/// Open tree of a diff or a merge.
pub(crate) struct Side {
    pub(crate) tree: Tree,
    /// True if entries are missing because they could not be read.
    pub(crate) has_unreadable_entries: bool,
}

impl Side {
    /// Opens a side. With `use_ignore_files`, `.workspaceignore` files apply to a directory.
    pub(crate) fn open(
        store: &Store,
        source: &SideSource,
        use_ignore_files: bool,
        progress: &dyn Progress,
    ) -> Result<Self> {
        match source {
            SideSource::Snapshot(snapshot) => {
                Ok(Self { tree: Tree::of_snapshot(store, snapshot)?, has_unreadable_entries: false })
            }
            SideSource::Directory(path) => Self::of_directory(store, path, use_ignore_files, progress),
        }
    }

    /// Opens a directory through a temporary snapshot, which is removed before this returns. The open tree protects
    /// its objects from garbage collection; a later collection removes them.
    fn of_directory(
        store: &Store,
        path: &Path,
        use_ignore_files: bool,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let new = NewSnapshot { durability: Durability::Buffered, ..NewSnapshot::default() };
        let options = SnapshotOptions {
            new,
            use_ignore_files,
            // The next `workspace snapshot` or `checkout` of the directory must not rely on this snapshot.
            record_as_checkout: false,
            ..SnapshotOptions::default()
        };
        let report = snapshot_directory(store, path, options, progress)?;
        let tree = Tree::of_snapshot(store, &report.snapshot);
        store.remove_snapshots(&[report.snapshot.id])?;
        warn_skipped(&skipped(&report), report.skipped_count);
        Ok(Self { tree: tree?, has_unreadable_entries: has_unreadable_entries(&report) })
    }
}
