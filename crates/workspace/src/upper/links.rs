//! Hard-linked files of an upper directory.

use workspace_state::{LinkedFile, Node, StatFingerprint, Timestamp};

use super::{Below, Walk};
use crate::error::Result;

/// A hard-linked file of which one name was added.
pub(super) struct Linked {
    file: LinkedFile,
    fingerprint: StatFingerprint,
}

/// Names of one file.
#[derive(Default)]
pub(super) struct Names {
    all: Vec<Vec<u8>>,
    /// Name that the file has in the base, if it is unchanged there.
    kept: Option<Vec<u8>>,
}

impl Walk<'_> {
    /// Returns the label of a hard-linked file of the base, if it is unchanged in the upper directory. The
    /// kernel copies such a file up under one of its names when it is linked or opened for writing. It is
    /// still the same file. Names with one label are one file only if content and time are equal, too, so it
    /// need not be read for this.
    pub(super) fn kept_label(
        &self,
        at: &Below,
        name: &[u8],
        fingerprint: StatFingerprint,
    ) -> Result<Option<u64>> {
        let Some(base) = at.base.as_deref() else { return Ok(None) };
        let Some(entry) = self.scan.base.tree.entry_of(base, name)? else { return Ok(None) };
        let Node::File(file) = &entry.node else { return Ok(None) };
        let is_same = u32::from(file.mode) == fingerprint.mode & 0o7777
            && file.size() == fingerprint.size
            && entry.modified == Some(Timestamp(fingerprint.mtime));
        Ok(entry.link.filter(|_| is_same))
    }

    /// Records a name of a hard-linked file in the upper directory, and the label of the base that it keeps.
    pub(super) fn add_name(
        &mut self,
        path: &[u8],
        fingerprint: StatFingerprint,
        kept: Option<u64>,
    ) -> Result<()> {
        self.usage.add_metadata(path.len())?;
        let names = self.names.entry(fingerprint.inode).or_default();
        if kept.is_some() {
            names.kept = Some(path.to_vec());
        }
        names.all.push(path.to_vec());
        Ok(())
    }

    /// Gives all names of a file the label of the base that one of them keeps.
    pub(super) fn unify_labels(&mut self) -> Result<()> {
        for Names { all, kept } in std::mem::take(&mut self.names).into_values() {
            let Some(kept) = kept else { continue };
            let Some(file) = self.tree.added_file(&kept)? else { continue };
            for path in all.iter().filter(|path| **path != kept) {
                self.scan.check_cancelled()?;
                // A name that vanished is not added again.
                if self.tree.exists(path)? {
                    self.tree.put_linked_file(path, &file)?;
                }
            }
        }
        Ok(())
    }

    /// Adds another name of a file that was added before, if the fingerprint is the same. Returns false if it
    /// was not. The name is not added to the index: adding, removing or renaming any of the names changes the
    /// fingerprint of all.
    pub(super) fn add_if_linked(&mut self, path: &[u8], fingerprint: StatFingerprint) -> Result<bool> {
        let Some(linked) =
            self.linked.get(&fingerprint.inode).filter(|linked| linked.fingerprint == fingerprint)
        else {
            return Ok(false);
        };
        self.tree.put_linked_file(path, &linked.file)?;
        Ok(true)
    }

    /// Records a hard-linked file that was added.
    pub(super) fn record_linked(&mut self, path: &[u8], fingerprint: StatFingerprint) -> Result<()> {
        if let Some(file) = self.tree.added_file(path)? {
            self.linked.insert(fingerprint.inode, Linked { file, fingerprint });
        }
        Ok(())
    }

    /// Returns a label that is equal for all names of one file. Inode numbers are reused, but the name of a
    /// workspace's directory is not.
    pub(super) fn label(&self, inode: u64) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.scan.name.as_bytes()).update(&inode.to_le_bytes());
        let mut word = [0; 8];
        word.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(word)
    }
}
