//! Record of a workspace: its state on disk.
//!
//! A record is written when its workspace is complete, and replaced atomically before each later operation.
//! It is not synced: it must survive a killed process, but a machine crash may destroy the whole workspace. A
//! workspace whose record cannot be read is reported, not removed.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use workspace_state::{PinId, SnapshotId};

use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider_kind::ProviderKind;

/// Name of the record in the directory of the workspace.
const RECORD_FILE: &str = "record";
/// Temporary name of a record that replaces another one.
const NEW_RECORD_FILE: &str = "record.new";
/// Name of the record once the workspace is being removed. Renaming it needs no disk space.
const REMOVING_FILE: &str = "removing";

/// State of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Id of this instance of the workspace. Unlike the workspace id that the caller chooses, it is never reused.
    #[serde(rename = "uid")]
    pub instance_id: String,
    /// Progress of a reset or removal.
    pub phase: Phase,
    /// Generation in use.
    pub current: Generation,
    /// Generation before the last reset, until it is removed. While a reset creates the next generation, this field
    /// holds the next one, so that recovery removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Generation>,
    /// Last snapshot that was committed from the workspace or that it was reset to: the parent of the next
    /// commit.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "last")]
    pub last_snapshot: Option<SnapshotId>,
    /// Value of `last_snapshot` in the former generation, to undo a reset.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "former_last")]
    pub former_last_snapshot: Option<SnapshotId>,
    /// Pin of the former base during a reset in place; removed when the reset is complete.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "spare")]
    pub former_pin: Option<PinId>,
}

/// Progress of a reset or removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No operation is in progress.
    Ready,
    /// Reset in progress: processes may still use the former generation. If there is no former
    /// generation, the reset is in place and the content may be a mix of two snapshots.
    Switching,
    /// Removal in progress.
    Removing,
}

/// Generation of a workspace: a directory with its content. Each reset that is not in place creates the next
/// generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Number, from 1.
    pub number: u32,
    /// Provider that created it.
    pub provider: ProviderKind,
    /// Base snapshot; `None` if the workspace was created empty.
    pub base: Option<SnapshotId>,
    /// Pin that protects the base snapshot from garbage collection; `None` without a base.
    pub pin: Option<PinId>,
    /// Names of the layers below it, lowest first; empty if it uses none, or the lazy mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// UID that owns the files inside the sandbox; `None` if the mount is not idmapped.
    #[serde(rename = "user", default, skip_serializing_if = "Option::is_none")]
    pub idmap_uid: Option<u32>,
    /// Tenant that owns the workspace, for fair scheduling of background writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// True if it is an overlay without an upper directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Name of the anchor whose head it shows; `None` if it does not follow. The base is that head, and is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// Text of the caller about the base, which is replaced in the same moment; `None` if it gave none.
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
    /// Creates the record of a workspace with a new instance id.
    pub(crate) fn new(current: Generation) -> Self {
        let instance_id = uuid::Uuid::now_v7().to_string();
        Self {
            instance_id,
            phase: Phase::Ready,
            current,
            former: None,
            last_snapshot: None,
            former_last_snapshot: None,
            former_pin: None,
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

    /// Returns true if a reset in place was not completed: the content may be a mix of two snapshots.
    pub(crate) fn is_partly_reset(&self) -> bool {
        self.phase == Phase::Switching && self.former.is_none()
    }

    /// Returns the pins of all base snapshots.
    pub(crate) fn pins(&self) -> impl Iterator<Item = PinId> {
        let of_generations =
            self.former.iter().chain([&self.current]).filter_map(|generation| generation.pin);
        of_generations.chain(self.former_pin)
    }

    fn read_from(path: &Path) -> Result<Self> {
        let text = fs::read(path).context("read", path)?;
        serde_json::from_slice(&text).map_err(io::Error::from).context("parse", path)
    }

    /// Replaces the record in a workspace's directory atomically.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(RECORD_FILE), directory.join(NEW_RECORD_FILE));
        let text = serde_json::to_vec(self).map_err(io::Error::from).context("write", &path)?;
        let written = fs::write(&new, text).context("write", &new);
        let written = written.and_then(|()| fs::rename(&new, &path).context("replace", &path));
        if written.is_err() {
            drop(fs::remove_file(&new));
        }
        written
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

    /// Returns true if no record was ever written in a workspace's directory.
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
            instance_id: "a".to_owned(),
            phase: Phase::Switching,
            former: Some(generation.clone()),
            current: Generation { number: 2, provider: ProviderKind::Copy, ..generation },
            last_snapshot: None,
            former_last_snapshot: Some(SnapshotId::generate()),
            former_pin: None,
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
}
