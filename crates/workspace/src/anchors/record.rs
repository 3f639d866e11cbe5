//! Record of an anchor: its state on disk.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use workspace_state::SnapshotId;

use crate::error::{Context as _, Result};

const RECORD_FILE: &str = "record";
const NEW_RECORD_FILE: &str = "record.new";

/// Head that followers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownHead {
    /// Snapshot whose files are shown.
    pub snapshot: SnapshotId,
    /// Sequence of the project's head when these files were first shown.
    pub sequence: i64,
}

/// State of an anchor. Like that of a workspace, it survives a killed process; a crash of the machine ends all mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnchorRecord {
    /// Head that is shown. During a switch it is the former one.
    pub(super) shown: Option<ShownHead>,
    /// Names of the layers of each head that processes may use, lowest first.
    pub(super) heads: Vec<Vec<String>>,
}

impl AnchorRecord {
    /// Reads the record in the directory of an anchor; an empty one if there is none.
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(RECORD_FILE);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            text => serde_json::from_slice(&text.context("read", &path)?)
                .map_err(io::Error::from)
                .context("parse", &path),
        }
    }

    /// Replaces the record atomically.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(RECORD_FILE), directory.join(NEW_RECORD_FILE));
        let text = serde_json::to_vec(self).map_err(io::Error::from).context("write", &path)?;
        fs::write(&new, text).context("write", &new)?;
        fs::rename(&new, &path).context("replace", &path)
    }
}
