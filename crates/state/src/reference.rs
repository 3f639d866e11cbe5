//! References: names that move from snapshot to snapshot, only by compare-and-set.

use crate::commit_options::{Durability, Expect};
use crate::error::{Result, StoreError};
use crate::id::SnapshotId;
use crate::log_record::Change;
use crate::store::Store;

/// Checks that a reference may have this name. A commit checks it too; call this before expensive work.
///
/// A `~` is not allowed, because people write `name~1` for an ancestor.
pub fn check_reference_name(name: &str) -> Result<()> {
    let part_fits = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if name.len() <= 255 && name.split('/').all(part_fits) {
        Ok(())
    } else {
        Err(StoreError::BadReferenceName(name.to_owned()))
    }
}

impl Store {
    /// Returns the snapshot that a reference points to; `None` if there is no such reference.
    pub fn reference(&self, name: &str) -> Result<Option<SnapshotId>> {
        // LMDB rejects empty and very long keys; no reference has such a name.
        if check_reference_name(name).is_err() {
            return Ok(None);
        }
        let txn = self.inner.index.read()?;
        let bytes = self.inner.index.references.get(&txn, name.as_bytes())?;
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(SnapshotId::from_bytes))
    }

    /// Returns all references, sorted by name.
    pub fn references(&self) -> Result<Vec<(String, SnapshotId)>> {
        let txn = self.inner.index.read()?;
        let rows = self.inner.index.rows(&txn, &self.inner.index.references)?;
        Ok(rows
            .into_iter()
            .filter_map(|(name, target)| {
                Some((String::from_utf8(name).ok()?, SnapshotId::from_bytes(target.try_into().ok()?)))
            })
            .collect())
    }

    /// Moves a reference if its value is as expected.
    pub fn set_reference(
        &self,
        name: &str,
        expect: Expect,
        to: SnapshotId,
        durability: Durability,
    ) -> Result<()> {
        let change = Change::SetReference { name: name.to_owned(), expect, to };
        self.commit_changes(vec![change], durability)
    }

    /// Removes a reference if its value is as expected.
    pub fn remove_reference(&self, name: &str, expect: Expect) -> Result<()> {
        let change = Change::RemoveReference { name: name.to_owned(), expect };
        self.with_reserve(|| self.commit_changes(vec![change.clone()], Durability::Synced))
    }

    pub(crate) fn commit_changes(&self, changes: Vec<Change>, durability: Durability) -> Result<()> {
        self.inner.commit(crate::new_objects::NewObjects::default(), changes, durability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_names_exclude_revision_suffixes() {
        for name in ["main", "a/b.c_d-e", "0199"] {
            assert!(check_reference_name(name).is_ok(), "{name}");
        }
        for name in ["", "main~1", "~", "main^", "main@{1}", "a b", "a//b", "a/../b"] {
            assert!(check_reference_name(name).is_err(), "{name}");
        }
    }
}
