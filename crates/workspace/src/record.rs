//! What is known of a workspace, on disk beside it.
//!
//! A record is written before what it tells of is done, and replaced in one step. It is not synced: it has to survive
//! a killed process, and after a crash of the machine what it tells of may be gone as well. A workspace whose record
//! cannot be read is reported, not removed.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use workspace_state::{PinId, SnapshotId};

use crate::error::{Context as _, Result};
use crate::provider::Kind;

/// Where it is in the directory of its workspace.
const NAME: &str = "record";

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
}

/// How far the making or removing of a workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It was never given to anybody.
    Making,
    /// It is there.
    Ready,
    /// It is there, and whoever uses it may still see the former generation.
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
}

impl Record {
    /// The record in a workspace's directory.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        let text = fs::read(&path).on("read", &path)?;
        serde_json::from_slice(&text).map_err(io::Error::from).on("understand", &path)
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(NAME), directory.join("record.new"));
        let text = serde_json::to_vec(self).map_err(io::Error::from).on("write", &path)?;
        fs::write(&new, text).on("write", &new)?;
        fs::rename(&new, &path).on("replace", &path)
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
        };
        let record = Record {
            uid: "a".to_owned(),
            phase: Phase::Switching,
            former: Some(generation.clone()),
            current: Generation { number: 2, provider: Kind::Copy, ..generation },
            last: None,
        };
        record.write(home.path()).unwrap();
        assert_eq!(Record::read(home.path()).unwrap(), record);
        fs::write(home.path().join(NAME), "{").unwrap();
        assert!(Record::read(home.path()).unwrap_err().to_string().contains("understand"));
    }
}
