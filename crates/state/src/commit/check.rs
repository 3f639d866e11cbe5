//! Preconditions of the changes of a commit.
//!
//! A group commit applies several requests in one transaction of the index. A request is checked after the changes of
//! the earlier requests of its group are applied to the transaction.

use std::collections::HashSet;

use heed::RwTxn;

use crate::commit_options::Expect;
use crate::error::{Result, StoreError};
use crate::id::{EpisodeId, SnapshotId};
use crate::log_record::Change;
use crate::reference_targets::CommitId;
use crate::store::Inner;

/// Changes of references (names of snapshots) that earlier requests of the same group may have made in the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingReferences {
    /// No changes.
    Unchanged,
    /// Some references may be removed; none is new or has another target.
    OnlyRemoved,
    /// Some references may be new or have another target.
    Set,
}

impl PendingReferences {
    /// Returns the kind of these changes.
    pub(super) fn of<'c>(changes: impl Iterator<Item = &'c Change>) -> Self {
        let mut pending = Self::Unchanged;
        for change in changes {
            match change {
                Change::SetReference { .. } => return Self::Set,
                Change::RemoveReference { .. } => pending = Self::OnlyRemoved,
                _ => {}
            }
        }
        pending
    }
}

impl Inner {
    /// Checks that all changes of a request are allowed, before any of them is applied to the transaction. `last` is
    /// the last commit before the transaction; `pending` has the changes of references in the transaction so far.
    pub(super) fn check(
        &self,
        txn: &RwTxn<'_>,
        changes: &[Change],
        last: &CommitId,
        pending: PendingReferences,
    ) -> Result<()> {
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
                    self.check_unreferenced(txn, id, changes, last, pending)?;
                }
                Change::PutEpisode { id, parent, .. } => {
                    if let Some(parent) = parent {
                        self.check_parent(txn, parent)?;
                    }
                    self.check_same_parent(txn, id, parent.as_ref())?;
                }
                Change::RemoveEpisode { id, .. } => self.check_childless(txn, id, &removed_episodes)?,
                Change::PutSnapshot(_) | Change::PutPin { .. } | Change::RemovePin(_) => {}
            }
        }
        Ok(())
    }

    /// Fails if the target of the reference is not the expected one.
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

    /// Fails if a reference points to snapshot `id`, which is about to be removed, unless `changes` remove or move that
    /// reference too. `Inner::reference_targets` caches the targets of all references after some commit. All references
    /// are read only if the cache is of another commit than `last`, or has the snapshot.
    fn check_unreferenced(
        &self,
        txn: &RwTxn<'_>,
        id: &SnapshotId,
        changes: &[Change],
        last: &CommitId,
        pending: PendingReferences,
    ) -> Result<()> {
        // A removal adds no target, so a snapshot that was no target at `last` is still none.
        let cache_is_sufficient =
            matches!(pending, PendingReferences::Unchanged | PendingReferences::OnlyRemoved);
        if cache_is_sufficient && self.reference_targets.is_no_target(last, id) {
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
        // After uncommitted changes, the targets are not the targets at `last`, and the transaction may still fail.
        if pending == PendingReferences::Unchanged {
            self.reference_targets.replace(*last, targets);
        }
        Ok(())
    }

    /// Fails if the parent of a new episode (a step of a search) does not exist. Another process may have removed it
    /// since the caller looked.
    fn check_parent(&self, txn: &RwTxn<'_>, parent: &EpisodeId) -> Result<()> {
        match self.index.episodes.get(txn, parent.as_bytes())? {
            Some(_) => Ok(()),
            None => Err(StoreError::Refused(format!("episode `{parent}` not found"))),
        }
    }

    /// Fails if an episode exists and has another parent. It would be a child of both.
    fn check_same_parent(&self, txn: &RwTxn<'_>, id: &EpisodeId, parent: Option<&EpisodeId>) -> Result<()> {
        let Some(record) = self.index.episodes.get(txn, id.as_bytes())? else { return Ok(()) };
        let undecodable = |source| StoreError::Undecodable { what: "an episode".to_owned(), source };
        if crate::episode::parent_of(record).map_err(undecodable)?.as_ref() == parent {
            return Ok(());
        }
        Err(StoreError::Refused(format!("episode {id} has another parent")))
    }

    /// Fails if episode `id`, which is about to be removed, has a child that is not in `removed`. Such a child would
    /// have no parent, and no query would find it.
    fn check_childless(&self, txn: &RwTxn<'_>, id: &EpisodeId, removed: &HashSet<EpisodeId>) -> Result<()> {
        for entry in self.index.episode_children.prefix_iter(txn, id.as_bytes())? {
            let (key, _) = entry?;
            let child = key[16..].try_into().ok().map(EpisodeId::from_bytes);
            if let Some(child) = child.filter(|child| !removed.contains(child)) {
                return Err(StoreError::Refused(format!(
                    "episode {child} is below episode {id} and would remain; it may have been added meanwhile: list \
                     the descendants again"
                )));
            }
        }
        Ok(())
    }
}

/// Decodes a snapshot id; `None` if there is no row, or its length is wrong.
fn snapshot_id(bytes: Option<&[u8]>) -> Option<SnapshotId> {
    bytes.and_then(|bytes| bytes.try_into().ok()).map(SnapshotId::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_options::NewSnapshot;
    use crate::store::Store;

    #[test]
    fn targets_after_an_uncommitted_removal_are_not_cached() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let references = vec![("a".to_owned(), Expect::Absent)];
        let snapshot =
            store.empty_tree().unwrap().commit(NewSnapshot { references, ..NewSnapshot::default() }).unwrap();
        let inner = &store.inner;
        let mut txn = inner.index.write().unwrap();
        let removal = Change::RemoveReference { name: "a".to_owned(), expect: Expect::Anything };
        let pending = PendingReferences::of([&removal].into_iter());
        assert_eq!(pending, PendingReferences::OnlyRemoved);
        inner.index.apply(&mut txn, &removal).unwrap();
        let last = [7; 32];
        inner.check(&txn, &[Change::RemoveSnapshot(snapshot.id)], &last, pending).unwrap();
        assert!(!inner.reference_targets.is_no_target(&last, &snapshot.id));

        // The reference exists again after the transaction is rolled back.
        drop(txn);
        let txn = inner.index.write().unwrap();
        let unchanged = PendingReferences::Unchanged;
        let refused = inner.check(&txn, &[Change::RemoveSnapshot(snapshot.id)], &last, unchanged);
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
}
