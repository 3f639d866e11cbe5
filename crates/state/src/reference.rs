//! References: names of snapshots, changed only by compare-and-set.

use crate::commit_options::{Durability, Expect};
use crate::error::{Result, StoreError};
use crate::id::SnapshotId;
use crate::log_record::Change;
use crate::store::Store;

/// Validates the name of a reference. A commit does the same; call this to fail before expensive work.
///
/// `~` is not allowed, because `name~1` denotes an ancestor.
pub fn check_reference_name(name: &str) -> Result<()> {
    let is_valid_part = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if name.len() <= 255 && name.split('/').all(is_valid_part) {
        Ok(())
    } else {
        Err(StoreError::BadReferenceName(name.to_owned()))
    }
}

impl Store {
    /// Returns the snapshot that a reference points to; `None` if there is no such reference.
    pub fn reference(&self, name: &str) -> Result<Option<SnapshotId>> {
        // LMDB rejects empty and very long keys.
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
        let rows = self.inner.index.read_all_rows(&txn, &self.inner.index.references)?;
        Ok(rows
            .into_iter()
            .filter_map(|(name, target)| {
                Some((String::from_utf8(name).ok()?, SnapshotId::from_bytes(target.try_into().ok()?)))
            })
            .collect())
    }

    /// Points a reference to `to` if its current value matches `expect`.
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

    /// Removes a reference if its current value matches `expect`.
    pub fn remove_reference(&self, name: &str, expect: Expect) -> Result<()> {
        let change = Change::RemoveReference { name: name.to_owned(), expect };
        self.retry_with_reserve(|| self.commit_changes(vec![change.clone()], Durability::Synced))
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
