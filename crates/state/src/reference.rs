//! References: names of snapshots, changed only by compare-and-set.

use std::ops::Bound;

use crate::commit_options::{Durability, Expect};
use crate::error::{Result, StoreError};
use crate::id::SnapshotId;
use crate::log_record::Change;
use crate::store::Store;

/// Maximum length of a name in bytes.
const NAME_MAX: usize = 255;

/// Fails if a reference cannot have this name. A commit checks names too; call this to fail before expensive work.
///
/// `~` is not allowed, because `name~1` denotes an ancestor.
pub fn check_reference_name(name: &str) -> Result<()> {
    let is_valid_part = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if name.len() <= NAME_MAX && name.split('/').all(is_valid_part) {
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
        Ok(rows.iter().filter_map(|(name, target)| decode(name, target)).collect())
    }

    /// Returns the references whose names begin with `prefix`, sorted by name. Reads no other references.
    pub fn references_with_prefix(&self, prefix: &str) -> Result<Vec<(String, SnapshotId)>> {
        // LMDB rejects empty and very long keys.
        if prefix.is_empty() {
            return self.references();
        }
        if prefix.len() > NAME_MAX {
            return Ok(Vec::new());
        }
        let txn = self.inner.index.read()?;
        let mut found = Vec::new();
        for row in self.inner.index.references.prefix_iter(&txn, prefix.as_bytes())? {
            let (name, target) = row?;
            found.extend(decode(name, target));
        }
        Ok(found)
    }

    /// Returns the name of the first reference to the snapshot `id` among the references whose names begin with
    /// `prefix`; `None` if there is none. Reads no other references.
    pub fn first_reference_to(&self, id: &SnapshotId, prefix: &str) -> Result<Option<String>> {
        if prefix.len() > NAME_MAX {
            return Ok(None);
        }
        let after = (!prefix.is_empty()).then(|| end_of_prefix(prefix)).flatten();
        self.first_between(id, Bound::Included(prefix.as_bytes()), bound_before(after.as_deref()))
    }

    /// Returns the name of the first reference to the snapshot `id` among the references whose names do not begin with
    /// `prefix`; `None` if there is none. Reads no other references.
    pub fn first_reference_outside(&self, id: &SnapshotId, prefix: &str) -> Result<Option<String>> {
        let before = self.first_between(id, Bound::Unbounded, Bound::Excluded(prefix.as_bytes()))?;
        match (before, end_of_prefix(prefix)) {
            (None, Some(after)) => self.first_between(id, Bound::Included(&after), Bound::Unbounded),
            (found, _) => Ok(found),
        }
    }

    /// Returns the name of the first reference to the snapshot `id` among the references with names between two bounds.
    fn first_between(&self, id: &SnapshotId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Option<String>> {
        // LMDB rejects empty keys.
        let from = if from == Bound::Included(&[][..]) { Bound::Unbounded } else { from };
        if to == Bound::Excluded(&[][..]) {
            return Ok(None);
        }
        let txn = self.inner.index.read()?;
        for row in self.inner.index.references.range(&txn, &(from, to))? {
            let (name, target) = row?;
            if target == id.as_bytes() {
                return Ok(decode(name, target).map(|(name, _)| name));
            }
        }
        Ok(None)
    }

    /// Sets a reference to the snapshot `to`. Fails with [`StoreError::ReferenceMoved`] if its current value does not
    /// match `expect`.
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

    /// Removes a reference. Fails with [`StoreError::ReferenceMoved`] if its current value does not match `expect`.
    pub fn remove_reference(&self, name: &str, expect: Expect) -> Result<()> {
        let change = Change::RemoveReference { name: name.to_owned(), expect };
        // On a full disk, removals use disk space that is reserved for them (`reserve.rs`).
        self.retry_with_disk_reserve(|| self.commit_changes(vec![change.clone()], Durability::Synced))
    }

    /// Removes a reference and the snapshot that it points to, in one commit. Fails if the reference does not point to
    /// `snapshot`, or if another reference does too.
    pub fn remove_reference_with_snapshot(&self, name: &str, snapshot: SnapshotId) -> Result<()> {
        let expect = Expect::At(snapshot);
        // If the snapshot is pending (not yet recorded elsewhere), its pin is removed too.
        let mut changes = self.changes_to_end_pending(&[snapshot])?;
        changes.push(Change::RemoveReference { name: name.to_owned(), expect });
        changes.push(Change::RemoveSnapshot(snapshot));
        self.retry_with_disk_reserve(|| self.commit_changes(changes.clone(), Durability::Synced))
    }

    /// Commits changes of snapshots, references and other records, without new objects.
    pub(crate) fn commit_changes(&self, changes: Vec<Change>, durability: Durability) -> Result<()> {
        self.inner.commit(crate::new_objects::NewObjects::default(), changes, durability)
    }
}

/// Returns the smallest byte string that is greater than all strings with a prefix; `None` for an empty prefix. Names
/// of references are ASCII.
fn end_of_prefix(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    let last = end.last_mut()?;
    *last = last.checked_add(1)?;
    Some(end)
}

/// Returns the upper bound of names before `end`; no bound if it is `None`.
fn bound_before(end: Option<&[u8]>) -> Bound<&[u8]> {
    end.map_or(Bound::Unbounded, Bound::Excluded)
}

/// Decodes a row of the index; `None` if it is not a reference.
fn decode(name: &[u8], target: &[u8]) -> Option<(String, SnapshotId)> {
    Some((String::from_utf8(name.to_vec()).ok()?, SnapshotId::from_bytes(target.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_options::NewSnapshot;

    #[test]
    fn references_are_found_by_prefix_and_by_target() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let [first, second] =
            [(); 2].map(|()| store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap().id);
        let all =
            [("a", first), ("a-b", second), ("a/b", first), ("a/b/c", second), ("a/c", first), ("b", second)];
        for (name, to) in all {
            store.set_reference(name, Expect::Absent, to, Durability::Buffered).unwrap();
        }
        let names = |prefix: &str| {
            let found = store.references_with_prefix(prefix).unwrap();
            assert!(found.iter().all(|(name, to)| all.contains(&(name.as_str(), *to))), "{found:?}");
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(""), "a a-b a/b a/b/c a/c b");
        assert_eq!(names("a/"), "a/b a/b/c a/c");
        assert_eq!(names("a/b"), "a/b a/b/c");
        assert_eq!(
            (names("c"), names("\0"), names(&"a".repeat(5_000))),
            (String::new(), String::new(), String::new())
        );
        let first_to = |id: &SnapshotId, prefix: &str| store.first_reference_to(id, prefix).unwrap();
        assert_eq!(first_to(&first, "").as_deref(), Some("a"));
        assert_eq!(first_to(&second, "a/").as_deref(), Some("a/b/c"));
        assert_eq!((first_to(&first, "b"), first_to(&SnapshotId::generate(), "")), (None, None));
        assert_eq!(first_to(&first, &"a".repeat(5_000)), None);
        let outside = |id: &SnapshotId, prefix: &str| store.first_reference_outside(id, prefix).unwrap();
        assert_eq!(outside(&first, "a/").as_deref(), Some("a"));
        assert_eq!(outside(&second, "a").as_deref(), Some("b"));
        assert_eq!((outside(&first, "a"), outside(&first, "")), (None, None));
    }

    #[test]
    fn a_snapshot_is_removed_only_without_references() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let snapshot = || store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap().id;
        let set = |name: &str, to| store.set_reference(name, Expect::Anything, to, Durability::Buffered);
        let removed = |id| store.remove_snapshots(&[id]);
        let (kept, other) = (snapshot(), snapshot());
        set("main", kept).unwrap();
        // The first removal reads all references into memory. A reference that was set before is found, and a reference
        // that is set afterwards is found as well.
        removed(snapshot()).unwrap();
        assert!(
            matches!(removed(kept), Err(StoreError::Refused(_))),
            "the reference was set before the first removal"
        );
        set("late", other).unwrap();
        assert!(matches!(removed(other), Err(StoreError::Refused(_))));
        set("late", kept).unwrap();
        removed(other).unwrap();
        store.remove_reference("main", Expect::At(kept)).unwrap();
        assert!(matches!(removed(kept), Err(StoreError::Refused(_))));
        store.remove_reference("late", Expect::At(kept)).unwrap();
        removed(kept).unwrap();
    }

    #[test]
    fn a_snapshot_is_removed_with_its_only_reference() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let [one, other] =
            [(); 2].map(|()| store.empty_tree().unwrap().commit(NewSnapshot::default()).unwrap().id);
        for name in ["a", "b"] {
            store.set_reference(name, Expect::Absent, one, Durability::Buffered).unwrap();
        }
        let refused = store.remove_reference_with_snapshot("a", one).unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
        let moved = store.remove_reference_with_snapshot("a", other).unwrap_err();
        assert!(matches!(moved, StoreError::ReferenceMoved { .. }), "{moved}");
        assert_eq!(store.first_reference_to(&one, "").unwrap().as_deref(), Some("a"));
        assert_eq!(store.first_reference_to(&one, "b").unwrap().as_deref(), Some("b"));
        store.remove_reference("b", Expect::At(one)).unwrap();
        store.remove_reference_with_snapshot("a", one).unwrap();
        assert_eq!((store.reference("a").unwrap(), store.find_snapshot(&one).unwrap()), (None, None));
        assert!(store.find_snapshot(&other).unwrap().is_some());
    }

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
