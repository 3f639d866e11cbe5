//! Files of several names.

use workspace_state::{LinkedFile, Node, StatFingerprint, Timestamp};

use super::{Below, Walk};
use crate::error::Result;

/// A file with several names, of which one was taken up.
pub(super) struct Linked {
    file: LinkedFile,
    fingerprint: StatFingerprint,
}

/// The names of one file.
#[derive(Default)]
pub(super) struct Names {
    all: Vec<Vec<u8>>,
    /// The one by which the base knows the file, if it lies there unchanged.
    kept: Option<Vec<u8>>,
}

impl Walk<'_> {
    /// The label of a file of the base that has several names, if it lies unchanged in the upper directory: the kernel
    /// copies such a file up under one of its names when somebody links it or opens it for writing. It is still that file.
    /// Names with one label are one file only where content and time are equal, too, so it need not be read for this.
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

    /// Notes a name of a file that has several in the upper directory, and the label of the base that it keeps.
    pub(super) fn name(
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

    /// Gives all names of a file the label of the base that one of them keeps, whichever was found first.
    pub(super) fn settle_names(&mut self) -> Result<()> {
        for Names { all, kept } in std::mem::take(&mut self.names).into_values() {
            let Some(kept) = kept else { continue };
            let Some(file) = self.tree.added_file(&kept)? else { continue };
            for path in all.iter().filter(|path| **path != kept) {
                self.scan.must_go_on()?;
                // One that is gone by now stays so.
                if self.tree.exists(path)? {
                    self.tree.put_linked_file(path, &file)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a file was taken up under another name, and looked the same: then this is a name of it too. The index does
    /// not have it: who adds, removes or moves one of the names changes how all of them look.
    pub(super) fn is_taken(&mut self, path: &[u8], fingerprint: StatFingerprint) -> Result<bool> {
        let Some(linked) =
            self.linked.get(&fingerprint.inode).filter(|linked| linked.fingerprint == fingerprint)
        else {
            return Ok(false);
        };
        self.tree.put_linked_file(path, &linked.file)?;
        Ok(true)
    }

    /// Notes that a file which has other names was taken up.
    pub(super) fn link(&mut self, path: &[u8], fingerprint: StatFingerprint) -> Result<()> {
        if let Some(file) = self.tree.added_file(path)? {
            self.linked.insert(fingerprint.inode, Linked { file, fingerprint });
        }
        Ok(())
    }

    /// Equal for names of one file. Numbers of inodes are used again, the name of a workspace's directory is not.
    pub(super) fn label(&self, inode: u64) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.scan.name.as_bytes()).update(&inode.to_le_bytes());
        let mut word = [0; 8];
        word.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(word)
    }
}
