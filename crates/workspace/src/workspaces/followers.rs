//! Workspaces that follow an anchor.
//!
//! The *head* of a project is the snapshot of its present files. An *anchor* is a mount that shows a head to several
//! read-only workspaces, its *followers*. When the anchor is switched to a new head, the content of all followers
//! changes at once. All followers of an anchor may read the same part of the project, their *view*. When the view of an
//! agent changes, its workspace changes to another anchor.

use std::path::PathBuf;

use workspace_state::SnapshotId;

use super::Workspaces;
use crate::anchor_to_follow::AnchorToFollow;
use crate::anchors::{FollowerProcesses, ShownHead};
use crate::base::{Base, Materialize};
use crate::error::Result;

impl Workspaces {
    /// Switches an anchor to a snapshot, for all workspaces that follow it. `sequence` is the number of changes of the
    /// project's head up to this snapshot. Returns false if the anchor already shows the files and times of the
    /// snapshot, or no workspace follows the anchor.
    pub fn switch_anchor(&self, name: &str, snapshot: SnapshotId, sequence: i64) -> Result<bool> {
        let snapshot = self.part.find_snapshot(&self.store, snapshot)?;
        self.anchors.switch(name, &self.store, &snapshot, sequence)
    }

    /// Returns the name of the anchor that a workspace follows, and the head that the anchor shows. Returns `None` if
    /// the workspace does not exist or follows no anchor. Does not wait for operations on the workspace.
    pub fn followed(&self, id: &str) -> Option<(String, Option<ShownHead>)> {
        let directory = self.get(id).ok()?.anchor?;
        let name = directory.file_name()?.to_string_lossy().into_owned();
        let shown = self.anchors.shown(&name);
        Some((name, shown))
    }

    /// Prepares a change of a workspace to the anchor `to`. `snapshot` becomes the head of that anchor, unless the
    /// anchor has a head whose sequence is not lower. The workspace still follows its former anchor. The caller makes
    /// its processes use the new anchor and calls [`Workspaces::finish_anchor_change`], or undoes the change with
    /// [`Workspaces::leave_anchor`]. Returns the directory of the new anchor; `None` if the workspace follows that
    /// anchor already, or follows no anchor.
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

    /// Records that a workspace follows the anchor `to`, which its processes use by now, and leaves the former anchor.
    pub fn finish_anchor_change(&self, id: &str, to: &str) -> Result<()> {
        let former = self.with_locked(id, |workspace| {
            let mut record = workspace.record.clone();
            let former = record.current.anchor.replace(to.to_owned());
            // Written first: if the write fails, the workspace still follows the former anchor, and the caller repeats
            // the change.
            record.write(&self.directory.join(id))?;
            workspace.record = record;
            Ok(former.filter(|former| former != to))
        })?;
        former.map_or(Ok(()), |former| self.anchors.leave(&former, id, FollowerProcesses::Running))
    }

    /// Undoes [`Workspaces::begin_anchor_change`]: the workspace no longer counts as a follower of the anchor `name`.
    /// No process of the workspace may use that anchor. The workspace still follows its former anchor.
    pub fn leave_anchor(&self, name: &str, id: &str) -> Result<()> {
        self.anchors.leave(name, id, FollowerProcesses::Ended)
    }

    /// Releases the layers (the lower directories on disk) of former heads that no process uses any more.
    pub fn release_former_heads(&self) {
        self.anchors.release_all_ended();
    }

    /// Returns the number of heads of an anchor whose layers are kept, including the present head.
    pub fn kept_heads(&self, name: &str) -> usize {
        self.anchors.head_count(name)
    }

    /// Returns the directory of an anchor.
    pub fn anchor_directory(&self, name: &str) -> PathBuf {
        self.anchors.directory_of(name)
    }
}
