//! Record of a workspace: its state on disk.
//!
//! A record is written when its workspace is complete, and replaced atomically before each later operation.
//! It is not synced: it must survive a killed process, but a machine crash may destroy the whole workspace. A
//! workspace whose record cannot be read is reported, not removed.
//!
//! A *reset* replaces the content of a workspace by that of another snapshot. It creates a new directory, the next
//! *generation*, or it replaces the files of the only directory *in place*. A *pin* protects a snapshot from garbage
//! collection.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use workspace_state::{PinId, SnapshotId};

use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider_kind::ProviderKind;

/// Name of the record in the directory of the workspace.
const RECORD_FILE: &str = "record";
/// Temporary name of a record that replaces another one.
const NEW_RECORD_FILE: &str = "record.new";
/// Name of the file with the record that replaces the present one if a reset in place is undone.
const UNDO_FILE: &str = "record.undo";
/// Name of the file with the record that replaces the present one if a reset in place succeeds.
const DONE_FILE: &str = "record.done";
/// Name of the record while the workspace is being removed. Renaming the record needs no disk space.
const REMOVING_FILE: &str = "removing";

/// State of a workspace on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Id of this creation of the workspace. Unlike the workspace id that the caller chooses, it is never reused.
    #[serde(rename = "uid")]
    pub creation_id: String,
    /// Progress of a reset or removal.
    pub phase: Phase,
    /// Generation in use.
    pub current: Generation,
    /// Generation before the last reset, until it is removed. While a reset creates the next generation, this field has
    /// that next generation, so that recovery removes it if the server is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Generation>,
    /// Parent of the next commit: the last snapshot that was committed from the workspace or that it was reset to.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "last")]
    pub next_parent: Option<SnapshotId>,
    /// Value of `next_parent` before a reset to a new directory, to undo that reset.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "former_last")]
    pub former_next_parent: Option<SnapshotId>,
    /// Pin of the former base during a reset in place; removed when the reset is complete. During a reset to a new
    /// directory, the field `former` has that pin.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "spare")]
    pub in_place_former_pin: Option<PinId>,
}

/// Progress of a reset or removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No operation is in progress.
    Ready,
    /// Reset in progress. If there is a former generation, processes may still use it. If there is none, the reset is
    /// in place, and the content may be a mix of two snapshots.
    #[serde(rename = "switching")]
    Resetting,
    /// Removal in progress.
    Removing,
}

/// Generation of a workspace: one of the directories that have or had its content. Each reset that is not in place
/// creates the next generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Number of the generation. The first one is 1.
    pub number: u32,
    /// Provider that created it.
    pub provider: ProviderKind,
    /// Snapshot that the generation was created from, and that its changes are compared with; `None` if it was created
    /// empty.
    pub base: Option<SnapshotId>,
    /// Pin that protects the base snapshot from garbage collection; `None` without a base.
    pub pin: Option<PinId>,
    /// Names of the layers (lower directories of an overlay), lowest first; empty if there are none, or the base is
    /// read from the lazy mount (a FUSE mount that loads files on first read).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// UID that owns the files as seen in the sandbox; `None` if the mount is not idmapped.
    #[serde(rename = "user", default, skip_serializing_if = "Option::is_none")]
    pub idmap_uid: Option<u32>,
    /// Tenant that owns the workspace, for fair scheduling of background writes; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// True if the generation is an overlay without an upper directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Name of the anchor that the workspace follows: a mount that shows the head of a project (the snapshot of its
    /// present files) to several workspaces. The base is then that head, and a base read from disk may be outdated.
    /// `None` if the workspace does not follow an anchor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// Text of the caller about the base, which this crate does not interpret; `None` if the caller gave none. A reset
    /// replaces base and text in the same write of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_info: Option<String>,
}

impl Generation {
    /// Returns the first generation of a workspace, whose directory does not exist yet.
    pub(crate) fn first(provider: ProviderKind, base: Option<SnapshotId>) -> Self {
        let (layers, pin) = (Vec::new(), base.map(|_| PinId::generate()));
        Self {
            number: 1,
            provider,
            base,
            pin,
            layers,
            idmap_uid: None,
            owner: None,
            read_only: false,
            anchor: None,
            base_info: None,
        }
    }

    /// Returns the next generation, whose directory does not exist yet.
    pub(crate) fn next(&self, provider: ProviderKind, base: Option<SnapshotId>) -> Self {
        let (number, idmap_uid, owner) = (self.number + 1, self.idmap_uid, self.owner.clone());
        Self { number, idmap_uid, owner, read_only: self.read_only, ..Self::first(provider, base) }
    }
}

impl Record {
    /// Creates the record of a workspace with a new creation id.
    pub(crate) fn new(current: Generation) -> Self {
        let creation_id = uuid::Uuid::now_v7().to_string();
        Self {
            creation_id,
            phase: Phase::Ready,
            current,
            former: None,
            next_parent: None,
            former_next_parent: None,
            in_place_former_pin: None,
        }
    }

    /// Reads the record in a workspace's directory. The phase of a renamed record is [`Phase::Removing`].
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        match Self::read_from(&directory.join(RECORD_FILE)) {
            Err(WorkspaceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let record = Self::read_from(&directory.join(REMOVING_FILE));
                record.map(|record| Self { phase: Phase::Removing, ..record })
            }
            record => record,
        }
    }

    /// Returns true if a reset to a new directory is in progress, to which processes must still be switched.
    pub(crate) fn has_pending_switch(&self) -> bool {
        self.phase == Phase::Resetting && self.former.is_some()
    }

    /// Returns true if a reset in place was not completed: the content may be a mix of two snapshots.
    pub(crate) fn is_partly_reset(&self) -> bool {
        self.phase == Phase::Resetting && self.former.is_none()
    }

    /// Returns the pins of the base snapshots of all generations, and that of the former base of a reset in place.
    pub(crate) fn pins(&self) -> impl Iterator<Item = PinId> {
        let of_generations =
            self.former.iter().chain([&self.current]).filter_map(|generation| generation.pin);
        of_generations.chain(self.in_place_former_pin)
    }

    /// Reads a record from a file.
    fn read_from(path: &Path) -> Result<Self> {
        let text = fs::read(path).context("read", path)?;
        serde_json::from_slice(&text).map_err(io::Error::from).context("parse", path)
    }

    /// Replaces the record in a workspace's directory atomically.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        self.prepare(directory, NEW_RECORD_FILE)?.install()
    }

    /// Writes this record to a file that can replace the present record if a reset in place is undone.
    pub(crate) fn prepare_undo(&self, directory: &Path) -> Result<PreparedRecord> {
        self.prepare(directory, UNDO_FILE)
    }

    /// Writes this record to a file that can replace the present record if a reset in place succeeds.
    pub(crate) fn prepare_done(&self, directory: &Path) -> Result<PreparedRecord> {
        self.prepare(directory, DONE_FILE)
    }

    /// Writes this record to the file `name`.
    fn prepare(&self, directory: &Path, name: &str) -> Result<PreparedRecord> {
        let prepared = PreparedRecord { path: directory.join(name), target: directory.join(RECORD_FILE) };
        let text = serde_json::to_vec(self).map_err(io::Error::from).context("write", &prepared.path)?;
        fs::write(&prepared.path, text).context("write", &prepared.path)?;
        Ok(prepared)
    }

    /// Records that the workspace is being removed, by renaming its record.
    pub(crate) fn mark_removing(directory: &Path) -> Result<()> {
        let path = directory.join(RECORD_FILE);
        match fs::rename(&path, directory.join(REMOVING_FILE)) {
            // Already renamed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.context("rename", &path),
        }
    }

    /// Returns true if a workspace's directory has no record, because the workspace was never completed.
    pub(crate) fn is_missing(directory: &Path) -> Result<bool> {
        for name in [RECORD_FILE, REMOVING_FILE] {
            let path = directory.join(name);
            if path.try_exists().context("stat", &path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Record in a file that can replace the present record, even if the disk is full by then. Drop removes the file.
#[derive(Debug)]
pub(crate) struct PreparedRecord {
    path: PathBuf,
    /// Path of the present record.
    target: PathBuf,
}

impl PreparedRecord {
    /// Replaces the present record atomically.
    pub(crate) fn install(self) -> Result<()> {
        fs::rename(&self.path, &self.target).context("replace", &self.target)
    }
}

impl Drop for PreparedRecord {
    fn drop(&mut self) {
        // The file does not exist if it was installed. If it cannot be removed, the next reset replaces it.
        drop(fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_round_trips() {
        let home = tempfile::tempdir().unwrap();
        let generation = Generation {
            number: 1,
            provider: ProviderKind::Overlay,
            base: Some(SnapshotId::generate()),
            pin: None,
            layers: vec!["x".to_owned()],
            idmap_uid: Some(7),
            owner: Some("alice".to_owned()),
            read_only: true,
            anchor: Some("main".to_owned()),
            base_info: Some("a text".to_owned()),
        };
        let record = Record {
            creation_id: "a".to_owned(),
            phase: Phase::Resetting,
            former: Some(generation.clone()),
            current: Generation { number: 2, provider: ProviderKind::Copy, ..generation },
            next_parent: None,
            former_next_parent: Some(SnapshotId::generate()),
            in_place_former_pin: None,
        };
        assert!(Record::is_missing(home.path()).unwrap());
        record.write(home.path()).unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), record);
        assert!(!Record::is_missing(home.path()).unwrap());
        Record::mark_removing(home.path()).unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), Record { phase: Phase::Removing, ..record });
        fs::write(home.path().join(RECORD_FILE), "{").unwrap();
        assert!(Record::read(home.path()).unwrap_err().to_string().contains("parse"));
    }

    #[test]
    fn a_prepared_record_is_installed_when_none_can_be_written() {
        let home = tempfile::tempdir().unwrap();
        let ready = Record::new(Generation::first(ProviderKind::Copy, None));
        let resetting = Record { phase: Phase::Resetting, ..ready.clone() };
        let undo = ready.prepare_undo(home.path()).unwrap();
        let done = ready.prepare_done(home.path()).unwrap();
        resetting.write(home.path()).unwrap();
        // Simulates a full disk: with a directory of this name, the record cannot be written.
        fs::create_dir(home.path().join(NEW_RECORD_FILE)).unwrap();
        ready.write(home.path()).unwrap_err();
        assert_eq!(Record::read(home.path()).unwrap(), resetting);
        undo.install().unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), ready);
        drop(done);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "the unused one is removed");
    }
}
