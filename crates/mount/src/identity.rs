//! File identities, and the inode numbers derived from them.
//!
//! An identity is a hash of the location of a file: the snapshot and the path below it. For a hard-linked file it is a
//! hash of the snapshot, the link label (a number that all names of the file have in common) and the content. Inode
//! numbers are derived from identities, so that they are the same after a remount, and a file stays the same file for
//! tools that compare inode numbers.

use workspace_state::{Entry, Extent, Node, SnapshotId};

/// Inode numbers leave the upper byte free: overlays store the number of a layer there (`xino`).
const INODE_BITS: u32 = 56;

/// Identity of a file, directory or symlink: the first 16 bytes of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity([u8; 16]);

impl Identity {
    pub(crate) fn of_snapshot(id: &SnapshotId) -> Self {
        Self::hash(b"snapshot", &[id.as_bytes()])
    }

    /// Returns the identity of a symlink in the root directory, for a reference or a prefix of an id. When
    /// the reference moves to another snapshot, the identity changes.
    pub(crate) fn of_root_symlink(name: &[u8], target: &SnapshotId) -> Self {
        Self::hash(b"alias", &[target.as_bytes(), name])
    }

    /// Returns the identity of a directory entry. `snapshot` is the identity of its snapshot.
    pub(crate) fn of_entry(directory: Self, snapshot: Self, entry: &Entry) -> Self {
        match (entry.link_label, &entry.node) {
            (Some(label), Node::File(_) | Node::Symlink(_)) => {
                Self::hash(b"link", &[&snapshot.0, &label.to_le_bytes(), &hash_content(entry)])
            }
            _ => Self::hash(b"entry", &[&directory.0, &entry.name]),
        }
    }

    /// Returns the preferred inode number, to be used unless it is taken.
    pub(crate) fn inode_number(self) -> u64 {
        let [a, b, c, d, e, f, g, ..] = self.0;
        let ino = u64::from_le_bytes([a, b, c, d, e, f, g, 0]);
        // 0 is invalid and 1 is the root.
        ino.max(2)
    }

    /// Returns the number to try after one that is taken.
    pub(crate) fn next_ino(ino: u64) -> u64 {
        ((ino + 1) & ((1 << INODE_BITS) - 1)).max(2)
    }

    /// Hashes a list of parts. For each kind, all parts except the last have a fixed length, so different
    /// lists never concatenate to the same bytes.
    fn hash(kind: &[u8], parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(kind);
        for part in parts {
            hasher.update(part);
        }
        let mut identity = [0; 16];
        hasher.finalize_xof().fill(&mut identity);
        Self(identity)
    }
}

/// Hashes the content, mode, time and extended attributes of an entry, which are equal for all names of a
/// hard-linked file. If a snapshot contradicts that, each content gets its own inode, so that no name shows the bytes
/// of another.
fn hash_content(entry: &Entry) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&entry.node.mode().to_le_bytes());
    hasher.update(&entry.modified.map_or(i64::MIN, |time| time.0).to_le_bytes());
    match &entry.node {
        Node::File(file) => {
            hasher.update(b"file");
            hash_xattrs(&mut hasher, &file.xattrs);
            for extent in &file.extents {
                hasher.update(&extent.len().to_le_bytes());
                match extent {
                    Extent::Data { chunk, .. } => hasher.update(chunk.as_bytes()),
                    Extent::Hole { .. } => hasher.update(&[0; 32]),
                };
            }
        }
        Node::Symlink(link) => {
            hasher.update(b"symlink").update(&link.target);
        }
        Node::Directory(directory) => {
            hasher.update(b"directory").update(directory.id.as_bytes());
        }
    }
    *hasher.finalize().as_bytes()
}

fn hash_xattrs(hasher: &mut blake3::Hasher, xattrs: &workspace_state::Xattrs) {
    hasher.update(&(xattrs.len() as u64).to_le_bytes());
    for (name, value) in xattrs {
        for part in [name, value] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workspace_state::{ChunkId, FileNode};

    fn file(name: &str, content: &[u8], link_label: Option<u64>) -> Entry {
        let chunk = ChunkId::of(content);
        let extents = vec![Extent::Data { len: content.len() as u64, chunk }];
        let node = Node::File(FileNode { mode: 0o644, extents, ..FileNode::default() });
        Entry { name: name.as_bytes().to_vec(), node, modified: None, link_label }
    }

    #[test]
    fn names_of_one_file_share_an_identity_within_their_snapshot() {
        let (here, there) =
            (Identity::of_snapshot(&SnapshotId::generate()), Identity::of_snapshot(&SnapshotId::generate()));
        let (a, b) = (file("a", b"x", Some(1)), file("b", b"x", Some(1)));
        let one = Identity::of_entry(here, here, &a);
        assert_eq!(one, Identity::of_entry(there, here, &b));
        assert_ne!(one, Identity::of_entry(there, there, &a));
        assert_ne!(one, Identity::of_entry(here, here, &file("c", b"other", Some(1))));
        assert_ne!(
            Identity::of_entry(here, here, &file("a", b"x", None)),
            Identity::of_entry(here, here, &file("b", b"x", None))
        );
    }

    #[test]
    fn inode_numbers_stay_below_what_overlays_use() {
        for _ in 0..1000 {
            let ino = Identity::of_snapshot(&SnapshotId::generate()).inode_number();
            assert!(ino >= 2 && ino >> INODE_BITS == 0);
        }
        assert_eq!(Identity::next_ino((1 << INODE_BITS) - 1), 2);
    }
}
