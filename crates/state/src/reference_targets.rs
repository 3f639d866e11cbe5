//! Targets of references in memory, so that removing a snapshot need not read all references.
//!
//! A reference is a name of a snapshot, its target. The target of a reference cannot be removed. The index has
//! references by name only, and a store may have a million of them. So a process that removes snapshots keeps the
//! targets of all references in memory, with the id of the last commit that they include. If the last commit of the
//! store has another id, because another process has committed, all references are read again.

use std::collections::HashSet;

use parking_lot::{Mutex, MutexGuard};

use crate::id::SnapshotId;
use crate::log_record::Change;

/// Id of the last commit record, as in [`LogState`](crate::log_state::LogState).
pub(crate) type CommitId = [u8; 32];

/// Maximum number of targets that are added before all references are read again. Former targets stay in the set until
/// then, because another reference may point to them.
const STALE_MAX: usize = 10_000;

/// Targets of all references after some commit, and some former targets.
#[derive(Debug, Default)]
pub(crate) struct ReferenceTargets(Mutex<Option<Targets>>);

#[derive(Debug)]
struct Targets {
    /// Id of the last commit that is included.
    commit: CommitId,
    ids: HashSet<SnapshotId>,
    /// Number of targets that were added since all references were read.
    added: usize,
}

impl ReferenceTargets {
    fn lock(&self) -> MutexGuard<'_, Option<Targets>> {
        self.0.lock()
    }

    /// Returns true if no reference points to a snapshot after this commit; false if one may, or if the targets after
    /// this commit are not known.
    pub(crate) fn is_no_target(&self, commit: &CommitId, id: &SnapshotId) -> bool {
        self.lock().as_ref().is_some_and(|targets| targets.commit == *commit && !targets.ids.contains(id))
    }

    /// Sets the targets of all references after a commit.
    pub(crate) fn replace(&self, commit: CommitId, ids: HashSet<SnapshotId>) {
        *self.lock() = Some(Targets { commit, ids, added: 0 });
    }

    /// Includes the changes of the commits after `from`, of which `to` is the last. Does nothing if the targets do not
    /// include `from`.
    pub(crate) fn advance<'c>(
        &self,
        from: &CommitId,
        to: &CommitId,
        changes: impl Iterator<Item = &'c Change>,
    ) {
        let mut guard = self.lock();
        let Some(targets) = guard.as_mut().filter(|targets| targets.commit == *from) else { return };
        targets.commit = *to;
        for change in changes {
            if let Change::SetReference { to, .. } = change {
                targets.added += usize::from(targets.ids.insert(*to));
            }
        }
        if targets.added > STALE_MAX {
            *guard = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_options::Expect;

    fn set(to: SnapshotId) -> Change {
        Change::SetReference { name: "a".to_owned(), expect: Expect::Anything, to }
    }

    #[test]
    fn only_known_commits_exclude_references() {
        let targets = ReferenceTargets::default();
        let [one, other, third] = [(); 3].map(|()| SnapshotId::generate());
        let (first, second, later) = ([1; 32], [2; 32], [9; 32]);
        assert!(!targets.is_no_target(&first, &one), "nothing is known");
        targets.replace(first, HashSet::from([one]));
        assert!(targets.is_no_target(&first, &other) && !targets.is_no_target(&first, &one));
        assert!(!targets.is_no_target(&second, &other), "another process has committed");
        targets.advance(&first, &second, [set(other)].iter());
        assert!(targets.is_no_target(&second, &third) && !targets.is_no_target(&second, &other));
        // The targets already include `second`, so changes after `first` do not continue them.
        targets.advance(&first, &later, [].iter());
        assert!(!targets.is_no_target(&later, &third));
    }

    #[test]
    fn former_targets_are_bounded() {
        let targets = ReferenceTargets::default();
        targets.replace([0; 32], HashSet::new());
        let changes: Vec<Change> = (0..=STALE_MAX).map(|_| set(SnapshotId::generate())).collect();
        targets.advance(&[0; 32], &[1; 32], changes.iter());
        assert!(targets.lock().is_none());
    }
}
