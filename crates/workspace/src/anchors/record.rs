//! Record of an anchor: its state on disk.
//!
//! An *anchor* is a mount that shows the head of a project (the snapshot of its present files) to several read-only
//! workspaces, its *followers*. Each head is an overlay over layers (read-only directories).

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use workspace_state::SnapshotId;

use crate::error::{Context as _, Result};

/// Name of the record in the directory of an anchor.
const RECORD_FILE: &str = "record";
/// Temporary name of a record that replaces another one.
const NEW_RECORD_FILE: &str = "record.new";

/// Head that the workspaces that follow an anchor see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownHead {
    /// Snapshot whose files are shown.
    pub snapshot: SnapshotId,
    /// Sequence (number of changes of the project's head so far) of the last head with these files that was shown.
    pub sequence: i64,
}

/// State of an anchor on disk. It is not synced: it must survive a killed process, but a crash of the machine ends all
/// mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnchorRecord {
    /// Head that followers see. During a switch to another head, it is the former head.
    pub(super) shown: Option<ShownHead>,
    /// Layers of each head that processes may use, oldest head first. The names of its layers are lowest first.
    pub(super) heads: Vec<Vec<String>>,
}

impl AnchorRecord {
    /// Reads the record in the directory of an anchor. Returns an empty record if the file does not exist.
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
