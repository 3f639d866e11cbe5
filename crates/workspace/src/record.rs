//! What is known of a workspace, on disk beside it.
//!
//! A record is written when its workspace is there, before what is done to it later is done, and replaced in one step. It is not synced: it has to survive
//! a killed process, and after a crash of the machine what it tells of may be gone as well. A workspace whose record
//! cannot be read is reported, not removed.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use workspace_state::{PinId, SnapshotId};

use crate::error::{Context as _, Result, WorkspaceError};
use crate::provider::Kind;

/// Where it is in the directory of its workspace.
const NAME: &str = "record";
/// What it is called while it is replaced.
const NEW: &str = "record.new";
/// What it is called from when the workspace goes. That takes no room, of which there may be none.
const REMOVING: &str = "removing";

/// What is known of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Told from every other, also from one of the same name that is gone.
    pub uid: String,
    /// How far it is.
    pub phase: Phase,
    /// The one that is used.
    pub current: Generation,
    /// Of the time before it was reset; removed when it is reset again, or with the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Generation>,
    /// The last snapshot that was made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<SnapshotId>,
    /// The same of the former generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_last: Option<SnapshotId>,
    /// What kept the base in the store before the current generation got another one; to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<PinId>,
}

/// How far the resetting or removing of a workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It is there.
    Ready,
    /// It is there, and whoever uses it may still see the former generation; where there is none, what it holds is
    /// between two snapshots.
    Switching,
    /// What is left of it goes.
    Removing,
}

/// A directory of a workspace, from one reset to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Counts from 1.
    pub number: u32,
    /// How it was made.
    pub provider: Kind,
    /// From what.
    pub base: Option<SnapshotId>,
    /// What keeps that in the store.
    pub pin: Option<PinId>,
    /// The layers it lies over, lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// The user of a sandbox's own to whom its files are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Whose it is: what is written for it in the background has this owner's turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Generation {
    /// The first of a workspace, to be made.
    pub(crate) fn first(provider: Kind, base: Option<SnapshotId>) -> Self {
        let (layers, pin) = (Vec::new(), base.map(|_| PinId::generate()));
        Self { number: 1, provider, base, pin, layers, user: None, owner: None }
    }

    /// The one after this, to be made.
    pub(crate) fn next(&self, provider: Kind, base: Option<SnapshotId>) -> Self {
        let (number, user, owner) = (self.number + 1, self.user, self.owner.clone());
        Self { number, user, owner, ..Self::first(provider, base) }
    }
}

impl Record {
    /// Of a workspace that is there.
    pub(crate) fn new(current: Generation) -> Self {
        let uid = uuid::Uuid::now_v7().to_string();
        Self { uid, phase: Phase::Ready, current, former: None, last: None, former_last: None, spare: None }
    }

    /// The record in a workspace's directory.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        match Self::read_from(&directory.join(NAME)) {
            Err(WorkspaceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let record = Self::read_from(&directory.join(REMOVING));
                record.map(|record| Self { phase: Phase::Removing, ..record })
            }
            record => record,
        }
    }

    /// What keeps its bases in the store.
    pub(crate) fn pins(&self) -> impl Iterator<Item = PinId> {
        let of_generations = self.former.iter().chain([&self.current]).filter_map(|one| one.pin);
        of_generations.chain(self.spare)
    }

    fn read_from(path: &Path) -> Result<Self> {
        let text = fs::read(path).on("read", path)?;
        serde_json::from_slice(&text).map_err(io::Error::from).on("understand", path)
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(NAME), directory.join(NEW));
        let text = serde_json::to_vec(self).map_err(io::Error::from).on("write", &path)?;
        let written = fs::write(&new, text).on("write", &new);
        let written = written.and_then(|()| fs::rename(&new, &path).on("replace", &path));
        if written.is_err() {
            drop(fs::remove_file(&new));
        }
        written
    }

    /// Notes that the workspace goes.
    pub(crate) fn remove(directory: &Path) -> Result<()> {
        let path = directory.join(NAME);
        match fs::rename(&path, directory.join(REMOVING)) {
            // Noted before.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.on("rename", &path),
        }
    }

    /// Whether none was ever written in a workspace's directory.
    pub(crate) fn is_unwritten(directory: &Path) -> Result<bool> {
        for name in [NAME, REMOVING] {
            let path = directory.join(name);
            if path.try_exists().on("look for", &path)? {
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
    fn a_record_comes_back_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let generation = Generation {
            number: 1,
            provider: Kind::Overlay,
            base: Some(SnapshotId::generate()),
            pin: None,
            layers: vec!["x".to_owned()],
            user: Some(7),
            owner: Some("alice".to_owned()),
        };
        let record = Record {
            uid: "a".to_owned(),
            phase: Phase::Switching,
            former: Some(generation.clone()),
            current: Generation { number: 2, provider: Kind::Copy, ..generation },
            last: None,
            former_last: Some(SnapshotId::generate()),
            spare: None,
        };
        assert!(Record::is_unwritten(home.path()).unwrap());
        record.write(home.path()).unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), record);
        assert!(!Record::is_unwritten(home.path()).unwrap());
        Record::remove(home.path()).unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), Record { phase: Phase::Removing, ..record });
        fs::write(home.path().join(NAME), "{").unwrap();
        assert!(Record::read(home.path()).unwrap_err().to_string().contains("understand"));
    }
}
