//! Preconditions of the changes of a commit.

use std::collections::HashSet;

use heed::RwTxn;

use crate::commit_options::Expect;
use crate::error::{Result, StoreError};
use crate::id::{EpisodeId, SnapshotId};
use crate::log_record::Change;
use crate::reference_targets::CommitId;
use crate::store::Inner;

impl Inner {
    /// Checks that all changes are allowed. Nothing is written before all changes of a commit are checked. `last` is
    /// the last commit in the transaction; `None` if the transaction has changes of references beyond it.
    pub(super) fn check(&self, txn: &RwTxn<'_>, changes: &[Change], last: Option<&CommitId>) -> Result<()> {
        let is_new = |id: &SnapshotId| {
            changes.iter().any(|change| matches!(change, Change::PutSnapshot(new) if new.id == *id))
        };
        let exists =
            |id: &SnapshotId| -> Result<bool> { Ok(is_new(id) || self.index.snapshot(txn, id)?.is_some()) };
        let removed_episodes: HashSet<EpisodeId> = changes
            .iter()
            .filter_map(|change| if let Change::RemoveEpisode { id, .. } = change { Some(*id) } else { None })
            .collect();
        for change in changes {
            match change {
                Change::SetReference { name, expect, to } => {
                    crate::reference::check_reference_name(name)?;
                    if !exists(to)? {
                        return Err(StoreError::UnknownSnapshot(*to));
                    }
                    self.check_reference(txn, name, *expect)?;
                }
                Change::RemoveReference { name, expect } => self.check_reference(txn, name, *expect)?,
                Change::RemoveSnapshot(id) => {
                    if !exists(id)? {
                        return Err(StoreError::UnknownSnapshot(*id));
                    }
                    self.check_unreferenced(txn, id, changes, last)?;
                }
                Change::PutEpisode { parent: Some(parent), .. } => self.check_parent(txn, parent)?,
                Change::RemoveEpisode { id, .. } => self.check_childless(txn, id, &removed_episodes)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn check_reference(&self, txn: &RwTxn<'_>, name: &str, expect: Expect) -> Result<()> {
        let found = snapshot_id(self.index.references.get(txn, name.as_bytes())?);
        let fits = match expect {
            Expect::Anything => true,
            Expect::Absent => found.is_none(),
            Expect::At(id) => found == Some(id),
        };
        if fits {
            return Ok(());
        }
        let shown = |id: Option<SnapshotId>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
        let expected = if let Expect::At(id) = expect { Some(id) } else { None };
        Err(StoreError::ReferenceMoved {
            name: name.to_owned(),
            expected: shown(expected),
            found: shown(found),
        })
    }

    fn check_unreferenced(
        &self,
        txn: &RwTxn<'_>,
        id: &SnapshotId,
        changes: &[Change],
        last: Option<&CommitId>,
    ) -> Result<()> {
        if last.is_some_and(|last| self.reference_targets.excludes(last, id)) {
            return Ok(());
        }
        let is_moved = |name: &[u8]| {
            changes.iter().any(|change| match change {
                Change::SetReference { name: other, .. } | Change::RemoveReference { name: other, .. } => {
                    other.as_bytes() == name
                }
                _ => false,
            })
        };
        let mut targets = HashSet::new();
        for entry in self.index.references.iter(txn)? {
            let (name, target) = entry?;
            let Some(target) = snapshot_id(Some(target)) else { continue };
            if target == *id && !is_moved(name) {
                let name = String::from_utf8_lossy(name);
                return Err(StoreError::Refused(format!(
                    "snapshot {id} is the target of reference `{name}`"
                )));
            }
            targets.insert(target);
        }
        if let Some(last) = last {
            self.reference_targets.replace(*last, targets);
        }
        Ok(())
    }

    /// Fails if the parent of an episode does not exist: another process may have removed it meanwhile.
    fn check_parent(&self, txn: &RwTxn<'_>, parent: &EpisodeId) -> Result<()> {
        match self.index.episodes.get(txn, parent.as_bytes())? {
            Some(_) => Ok(()),
            None => Err(StoreError::Refused(format!("episode `{parent}` not found"))),
        }
    }

    /// Fails if an episode has a child that is not removed with it. The child would have no parent, and no query would
    /// find it.
    fn check_childless(&self, txn: &RwTxn<'_>, id: &EpisodeId, removed: &HashSet<EpisodeId>) -> Result<()> {
        for entry in self.index.episode_children.prefix_iter(txn, id.as_bytes())? {
            let (key, _) = entry?;
            let child = key[16..].try_into().ok().map(EpisodeId::from_bytes);
            if let Some(child) = child.filter(|child| !removed.contains(child)) {
                return Err(StoreError::Refused(format!(
                    "episode {child} was added below episode {id} meanwhile; try again"
                )));
            }
        }
        Ok(())
    }
}

fn snapshot_id(bytes: Option<&[u8]>) -> Option<SnapshotId> {
    bytes.and_then(|bytes| bytes.try_into().ok()).map(SnapshotId::from_bytes)
}
