//! Link labels: numbers that identify hard-linked files. All names of one file have the same label in a snapshot.
//!
//! The label of a file on disk depends only on its inode number. A file that a checkout wrote has the label that the
//! snapshot gives it. The checkout records this label in two rows of the table of stat records: from inode to label,
//! and from label to inode. The label of any other file is the hash of its inode number, unless that label is
//! recorded already: then the hash is hashed again.

use crate::error::Result;

use super::stat_index::key;
use super::tracked_directory::TrackedDirectory;

impl TrackedDirectory<'_> {
    /// Returns the label of a file with several names: the recorded label, or an unused label derived from the inode.
    pub(super) fn label_of(&self, inode: u64) -> Result<u64> {
        if let Some(label) = self.read_number(&inode_key(inode))? {
            return Ok(label);
        }
        let mut label = hashed(inode);
        while self.read_number(&label_key(label))?.is_some() {
            label = hashed(label);
        }
        Ok(label)
    }

    /// Records pairs of an inode and its label. If another inode had the label, its row is removed. The row of an old
    /// label of an inode stays: labels of other files may have been chosen to differ from it, and must not change.
    pub(super) fn set_labels(&self, labels: &[(u64, u64)]) -> Result<()> {
        if labels.is_empty() {
            return Ok(());
        }
        self.store.inner.mark_index_dirty()?;
        let index = &self.store.inner.index;
        let mut txn = index.write()?;
        let row_key = |path: &[u8]| key(&self.id, path);
        for (inode, label) in labels {
            let label_row = row_key(&label_key(*label));
            if let Some(former_inode) = index.stats.get(&txn, &label_row)?.and_then(number) {
                let former_inode_row = row_key(&inode_key(former_inode));
                if index.stats.get(&txn, &former_inode_row)?.and_then(number) == Some(*label) {
                    index.stats.delete(&mut txn, &former_inode_row)?;
                }
            }
            index.stats.put(&mut txn, &row_key(&inode_key(*inode)), &label.to_le_bytes())?;
            index.stats.put(&mut txn, &label_row, &inode.to_le_bytes())?;
        }
        index.commit(txn)
    }

    /// Reads a row with a number: the label of an inode, or the inode of a label.
    fn read_number(&self, path: &[u8]) -> Result<Option<u64>> {
        let index = &self.store.inner.index;
        let txn = index.read()?;
        Ok(index.stats.get(&txn, &key(&self.id, path))?.and_then(number))
    }
}

/// Decodes a row; `None` if its length is wrong.
fn number(row: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(row.try_into().ok()?))
}

/// Returns the key of the row from an inode to its label. It takes the place of a path in the table of stat records,
/// and cannot be equal to one, because those paths never begin with a slash.
fn inode_key(inode: u64) -> Vec<u8> {
    format!("/inode/{inode}").into_bytes()
}

/// Returns the key of the row from a label to its inode.
fn label_key(label: u64) -> Vec<u8> {
    format!("/label/{label}").into_bytes()
}

/// Returns the first 64 bits of the hash of a number.
fn hashed(number: u64) -> u64 {
    let hash = blake3::hash(&number.to_le_bytes());
    let mut label = [0; 8];
    label.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(label)
}
