//! Link labels of hard-linked files: all names of one file have the same label in a snapshot.
//!
//! In one directory a label is a function of the inode: the hash of its number, or the label that a checkout
//! assigned because the snapshot has it. Assigned labels have two rows each in the table of stat records,
//! from inode to label and back, so that no second inode gets a label that is taken.

use crate::error::Result;

use super::stat_index::key;
use super::tracked_directory::TrackedDirectory;

impl TrackedDirectory<'_> {
    /// Returns the label of a file with several names.
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

    /// Records pairs of an inode and its label. An inode that had one of these labels before loses it. A label without
    /// an inode stays taken, so that labels derived to avoid it do not change.
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

    /// Reads a row that holds a number: a label or an inode.
    fn read_number(&self, path: &[u8]) -> Result<Option<u64>> {
        let index = &self.store.inner.index;
        let txn = index.read()?;
        Ok(index.stats.get(&txn, &key(&self.id, path))?.and_then(number))
    }
}

fn number(row: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(row.try_into().ok()?))
}

/// Returns a key that cannot collide with a path, which never begins with a slash.
fn inode_key(inode: u64) -> Vec<u8> {
    format!("/inode/{inode}").into_bytes()
}

fn label_key(label: u64) -> Vec<u8> {
    format!("/label/{label}").into_bytes()
}

fn hashed(number: u64) -> u64 {
    let hash = blake3::hash(&number.to_le_bytes());
    let mut label = [0; 8];
    label.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(label)
}
