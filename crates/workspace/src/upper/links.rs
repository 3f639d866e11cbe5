//! Hard-linked files of an upper directory, which holds the changes of a workspace made by overlay.
//!
//! In a tree, the names of one hard-linked file have the same *link label*, a number. A file that the kernel copied
//! up unchanged keeps the label that it has in the base (the snapshot that the workspace was created from), so that it
//! is not reported as a change. Other files get a new label from [`Walk::new_link_label`]. [`Walk`] is the state of one
//! read of the upper directory. The *fingerprint* of a file is its mode, size, mtime, ctime and inode.

use workspace_state::{LinkedFile, Node, StatFingerprint, Timestamp};

use super::{UpperDirectory, Walk};
use crate::error::Result;

/// Hard-linked file of which one name is in the tree already.
pub(super) struct AddedLink {
    /// Content and attributes of the file, to add its other names.
    file: LinkedFile,
    fingerprint: StatFingerprint,
}

/// Names of one hard-linked file.
#[derive(Default)]
pub(super) struct HardLinkNames {
    /// Paths of all names in the upper directory.
    all: Vec<Vec<u8>>,
    /// Path under which the base has the same, unchanged file; `None` if there is none.
    unchanged: Option<Vec<u8>>,
}

impl Walk<'_> {
    /// Returns the link label that a file of the upper directory has in the base. Returns `None` if it has no label
    /// there, or differs from the file of the base in mode, size or time. An unchanged file can be in the upper
    /// directory, because the kernel copies a file up, under one of its names, when the file is linked or opened for
    /// writing. The content need not be compared: readers of a tree treat two names as one file only if label, content
    /// and time are equal, so a name with other content is a separate file in spite of its label.
    pub(super) fn base_label_if_unchanged(
        &self,
        directory: &UpperDirectory,
        name: &[u8],
        fingerprint: StatFingerprint,
    ) -> Result<Option<u64>> {
        let Some(base_directory) = directory.base.as_deref() else { return Ok(None) };
        let Some(entry) = self.scan.base.tree.entry_of(base_directory, name)? else { return Ok(None) };
        let Node::File(file) = &entry.node else { return Ok(None) };
        let is_same = u32::from(file.mode) == fingerprint.mode & 0o7777
            && file.size() == fingerprint.size
            && entry.modified == Some(Timestamp(fingerprint.mtime));
        Ok(entry.link_label.filter(|_| is_same))
    }

    /// Records a name of a hard-linked file. `base_label_if_unchanged` is the link label that the name keeps from the
    /// base; `None` if it gets a new label.
    pub(super) fn record_link_name(
        &mut self,
        path: &[u8],
        fingerprint: StatFingerprint,
        base_label_if_unchanged: Option<u64>,
    ) -> Result<()> {
        // Counts against the memory limit of the walk.
        self.usage.add_metadata(path.len())?;
        let names = self.link_names.entry(fingerprint.inode).or_default();
        if base_label_if_unchanged.is_some() {
            names.unchanged = Some(path.to_vec());
        }
        names.all.push(path.to_vec());
        Ok(())
    }

    /// Gives all names of a hard-linked file its link label of the base, if one of the names keeps that label.
    pub(super) fn unify_labels(&mut self) -> Result<()> {
        for HardLinkNames { all, unchanged } in std::mem::take(&mut self.link_names).into_values() {
            let Some(unchanged) = unchanged else { continue };
            let Some(file) = self.tree.added_file(&unchanged)? else { continue };
            for path in all.iter().filter(|path| **path != unchanged) {
                self.scan.check_cancelled()?;
                // A file that vanished before it could be read is not in the tree.
                if self.tree.exists(path)? {
                    self.tree.put_linked_file(path, &file)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a path as another name of a file that was added before. Returns false if no file with this fingerprint was
    /// added. The fingerprint is not recorded for the next commit, which uses recorded fingerprints to skip unchanged
    /// files: adding, removing or renaming any name of the file changes the ctime of all its names.
    pub(super) fn add_as_link(&mut self, path: &[u8], fingerprint: StatFingerprint) -> Result<bool> {
        let Some(linked) =
            self.linked.get(&fingerprint.inode).filter(|linked| linked.fingerprint == fingerprint)
        else {
            return Ok(false);
        };
        self.tree.put_linked_file(path, &linked.file)?;
        Ok(true)
    }

    /// Records that a hard-linked file is in the tree, so that its other names need not be read.
    pub(super) fn record_added_link(&mut self, path: &[u8], fingerprint: StatFingerprint) -> Result<()> {
        if let Some(file) = self.tree.added_file(path)? {
            self.linked.insert(fingerprint.inode, AddedLink { file, fingerprint });
        }
        Ok(())
    }

    /// Returns a new link label, which is equal for all names of one file: a hash of its inode number and of the unique
    /// name of the workspace's directory. The name distinguishes it from a file with the same inode number in another
    /// workspace.
    pub(super) fn new_link_label(&self, inode: u64) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.scan.unique_name.as_bytes()).update(&inode.to_le_bytes());
        let mut word = [0; 8];
        word.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(word)
    }
}
