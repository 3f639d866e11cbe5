//! Workspaces that follow an anchor: its head is their content, and changes for all of them at once. A workspace
//! changes to another anchor when the view of its agent changes.

use std::path::PathBuf;

use workspace_state::SnapshotId;

use super::Workspaces;
use crate::anchor_to_follow::AnchorToFollow;
use crate::anchors::{FollowerProcesses, ShownHead};
use crate::base::{Base, Materialize};
use crate::error::Result;

impl Workspaces {
    /// Replaces the head of an anchor by a snapshot, for all workspaces that follow it. Returns false if its files are
    /// shown already, or nothing follows the anchor.
    pub fn switch_anchor(&self, name: &str, snapshot: SnapshotId, sequence: i64) -> Result<bool> {
        let snapshot = self.part.find_snapshot(&self.store, snapshot)?;
        self.anchors.switch(name, &self.store, &snapshot, sequence)
    }

    /// Returns the name of the anchor that a workspace follows, and the head that it shows; `None` if it does not
    /// follow. Does not wait for operations on the workspace.
    pub fn followed(&self, id: &str) -> Option<(String, Option<ShownHead>)> {
        let directory = self.get(id).ok()?.anchor?;
        let name = directory.file_name()?.to_string_lossy().into_owned();
        let shown = self.anchors.shown(&name);
        Some((name, shown))
    }

    /// Prepares another anchor for a workspace. `snapshot` becomes its head unless it has a newer one. The workspace
    /// follows its former anchor until [`Workspaces::finish_anchor_change`], or [`Workspaces::leave_anchor`] of the new
    /// one. Returns the directory of the new one; `None` if the workspace follows it already, or follows none.
    pub fn begin_anchor_change(
        &self,
        id: &str,
        to: &AnchorToFollow<'_>,
        snapshot: SnapshotId,
    ) -> Result<Option<PathBuf>> {
        let base = Base::new(&self.store, self.part, Some(snapshot), Materialize::Full)?;
        self.with_locked(id, |workspace| {
            let former = workspace.record.current.anchor.as_deref();
            if former.is_none() || former == Some(to.name) {
                return Ok(None);
            }
            self.anchors.join(to, id, &base)?;
            Ok(Some(self.anchors.directory_of(to.name)))
        })
    }

    /// Records that a workspace follows another anchor, which its processes use by now, and leaves the former one.
    pub fn finish_anchor_change(&self, id: &str, to: &str) -> Result<()> {
        let former = self.with_locked(id, |workspace| {
            let mut record = workspace.record.clone();
            let former = record.current.anchor.replace(to.to_owned());
            // Written first: if that fails, the workspace still follows the former anchor, and the change is repeated.
            record.write(&self.directory.join(id))?;
            workspace.record = record;
            Ok(former.filter(|former| former != to))
        })?;
        former.map_or(Ok(()), |former| self.anchors.leave(&former, id, FollowerProcesses::Running))
    }

    /// Undoes [`Workspaces::begin_anchor_change`]: releases the new anchor, which no process of the workspace uses. The
    /// workspace still follows its former anchor.
    pub fn leave_anchor(&self, name: &str, id: &str) -> Result<()> {
        self.anchors.leave(name, id, FollowerProcesses::Ended)
    }

    /// Releases the layers of former heads that no process uses any more.
    pub fn release_former_heads(&self) {
        self.anchors.release_all_ended();
    }

    /// Returns the number of heads of an anchor whose layers are kept, with the present one.
    pub fn kept_heads(&self, name: &str) -> usize {
        self.anchors.head_count(name)
    }

    /// Returns the directory of an anchor.
    pub fn anchor_directory(&self, name: &str) -> PathBuf {
        self.anchors.directory_of(name)
    }
}
