//! Records of workspaces, on disk next to them.
//!
//! A record is written when its workspace is complete, and again before each later operation, atomically. It
//! is not synced: it has to survive a killed process, and after a machine crash the workspace may be lost as
//! well. A workspace whose record cannot be read is reported, not removed.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use workspace_state::{PinId, SnapshotId};

use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider_kind::ProviderKind;

/// File name in the directory of the workspace.
const NAME: &str = "record";
/// File name while it is replaced.
const NEW: &str = "record.new";
/// File name once the workspace is being removed. It is renamed because that needs no disk space.
const REMOVING: &str = "removing";

/// State of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Unique id, never reused, unlike the name.
    pub uid: String,
    /// Progress of a reset or removal.
    pub phase: Phase,
    /// Generation in use.
    pub current: Generation,
    /// Generation before the last reset; removed by the next reset, or with the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Generation>,
    /// Last snapshot that was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<SnapshotId>,
    /// Last snapshot of the former generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_last: Option<SnapshotId>,
    /// Pin of the former base after a reset in place; to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "spare")]
    pub former_pin: Option<PinId>,
}

/// Progress of a reset or removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No operation is in progress.
    Ready,
    /// Reset in progress: processes may still use the former generation. If there is none, the content is a
    /// mix of two snapshots.
    Switching,
    /// Removal in progress.
    Removing,
}

/// Directory of a workspace, from one reset to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Number, from 1.
    pub number: u32,
    /// Provider that made it.
    pub provider: ProviderKind,
    /// Snapshot that it was made from.
    pub base: Option<SnapshotId>,
    /// Pin that keeps the base in the store.
    pub pin: Option<PinId>,
    /// Layers below it, lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// UID that owns the files inside the sandbox, by an idmapped mount.
    #[serde(rename = "user", default, skip_serializing_if = "Option::is_none")]
    pub idmap_uid: Option<u32>,
    /// Owner of the workspace, for fair scheduling of background writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Generation {
    /// Returns the first generation of a workspace, whose directory does not exist yet.
    pub(crate) fn first(provider: ProviderKind, base: Option<SnapshotId>) -> Self {
        let (layers, pin) = (Vec::new(), base.map(|_| PinId::generate()));
        Self { number: 1, provider, base, pin, layers, idmap_uid: None, owner: None }
    }

    /// Returns the next generation, whose directory does not exist yet.
    pub(crate) fn next(&self, provider: ProviderKind, base: Option<SnapshotId>) -> Self {
        let (number, idmap_uid, owner) = (self.number + 1, self.idmap_uid, self.owner.clone());
        Self { number, idmap_uid, owner, ..Self::first(provider, base) }
    }
}

impl Record {
    /// Creates the record of a workspace with a new unique id.
    pub(crate) fn new(current: Generation) -> Self {
        let uid = uuid::Uuid::now_v7().to_string();
        Self {
            uid,
            phase: Phase::Ready,
            current,
            former: None,
            last: None,
            former_last: None,
            former_pin: None,
        }
    }

    /// Reads the record in a workspace's directory.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        match Self::read_from(&directory.join(NAME)) {
            Err(WorkspaceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let record = Self::read_from(&directory.join(REMOVING));
                record.map(|record| Self { phase: Phase::Removing, ..record })
            }
            record => record,
        }
    }

    /// Returns the pins that keep its bases in the store.
    pub(crate) fn pins(&self) -> impl Iterator<Item = PinId> {
        let of_generations =
            self.former.iter().chain([&self.current]).filter_map(|generation| generation.pin);
        of_generations.chain(self.former_pin)
    }

    fn read_from(path: &Path) -> Result<Self> {
        let text = fs::read(path).context("read", path)?;
        serde_json::from_slice(&text).map_err(io::Error::from).context("parse", path)
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(NAME), directory.join(NEW));
        let text = serde_json::to_vec(self).map_err(io::Error::from).context("write", &path)?;
        let written = fs::write(&new, text).context("write", &new);
        let written = written.and_then(|()| fs::rename(&new, &path).context("replace", &path));
        if written.is_err() {
            drop(fs::remove_file(&new));
        }
        written
    }

    /// Records that the workspace is being removed.
    pub(crate) fn remove(directory: &Path) -> Result<()> {
        let path = directory.join(NAME);
        match fs::rename(&path, directory.join(REMOVING)) {
            // Already recorded.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.context("rename", &path),
        }
    }

    /// Returns true if no record was ever written in a workspace's directory.
    pub(crate) fn is_unwritten(directory: &Path) -> Result<bool> {
        for name in [NAME, REMOVING] {
            let path = directory.join(name);
            if path.try_exists().context("look for", &path)? {
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
        };
        let record = Record {
            uid: "a".to_owned(),
            phase: Phase::Switching,
            former: Some(generation.clone()),
            current: Generation { number: 2, provider: ProviderKind::Copy, ..generation },
            last: None,
            former_last: Some(SnapshotId::generate()),
            former_pin: None,
        };
        assert!(Record::is_unwritten(home.path()).unwrap());
        record.write(home.path()).unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), record);
        assert!(!Record::is_unwritten(home.path()).unwrap());
        Record::remove(home.path()).unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), Record { phase: Phase::Removing, ..record });
        fs::write(home.path().join(NAME), "{").unwrap();
        assert!(Record::read(home.path()).unwrap_err().to_string().contains("parse"));
    }
}
