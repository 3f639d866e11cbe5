//! Directories of the file system: taking snapshots of them and checking out snapshots into them.
//!
//! All operations are relative to an open directory and never follow a symlink inside it. So neither the content of a
//! tree nor the content of the directory can make them read or write outside of the directory.
//!
//! `scan` reads a directory, and `snapshot` commits the result. `checkout` selects the target tree, and `switch`
//! applies the differences to the directory. All of them use the data that the store keeps about a directory
//! (`tracked_directory`): the tree that it holds, the fingerprints of its files (`stat_index`), and the labels of
//! hard-linked files (`link_labels`). `temporary_access` adds permission bits that an operation needs, and removes them
//! afterwards.
//!
//! Three functions write to a directory. [`checkout`] writes a snapshot to a directory that the user works in, and
//! stops at local changes. [`apply_changes`] writes the differences between two snapshots, and keeps the record of the
//! checked-out snapshot. [`materialize`] writes a tree into an empty directory and records nothing.
//!
//! Functions `…_with_reader` read files through a [`DirectoryReader`], for a caller that must open some files in
//! another user namespace, or convert extended attributes. [`record_as_checkout`] records a directory as a checkout of
//! a snapshot that was taken of the directory, without writing to it.

mod checkout;
mod checkout_options;
mod error;
mod ignore_rules;
mod ignored_paths;
mod link_labels;
mod owner_ids;
mod parallel;
mod path;
mod read;
mod scan;
mod skipped;
mod snapshot;
mod snapshot_options;
mod stat_index;
mod switch;
mod temporary_access;
mod temporary_files;
mod tracked_directory;
mod tree_listing;
mod xattrs;

pub use checkout::{apply_changes, checkout, materialize, undo_checkout};
pub use checkout_options::{CheckoutOptions, CheckoutReport, EditCheck, WriteLimit};
pub use error::DirectoryError;
pub use ignored_paths::ignored_paths;
pub use owner_ids::{OwnerIds, owned_by};
pub use read::{DirectoryReader, open_for_reading, user_xattrs};
pub(crate) use read::{ReadError, ReadOutcome, read_file};
pub use skipped::{SkipReason, SkippedCollector, SkippedEntry};
pub use snapshot::{
    DirectoryPreview, SnapshotReport, preview_directory, preview_directory_with_reader, record_as_checkout,
    snapshot_directory, snapshot_directory_with_reader,
};
pub use snapshot_options::SnapshotOptions;
pub use stat_index::StatFingerprint;

/// Unescapes the extended attributes of a file in a layer (lower or upper directory) of an overlay file system that is
/// mounted with `userxattr`. Drops the attributes that the overlay itself uses.
pub fn unescape_xattrs(xattrs: crate::node::Xattrs) -> crate::node::Xattrs {
    xattrs::unescape(xattrs)
}

/// Escapes extended attributes for a file in a layer (lower or upper directory) of an overlay file system that is
/// mounted with `userxattr`, so that the kernel does not interpret them.
pub fn escape_xattrs(xattrs: &crate::node::Xattrs) -> crate::node::Xattrs {
    xattrs::escape(xattrs).into_owned()
}

/// Encoding of stat records (fingerprints of the files of a directory), for [`crate::testing`].
#[cfg(feature = "failpoints")]
pub(crate) mod stat_record {
    use super::stat_index::{StatEntry, StatFingerprint, StatRecord};
    use crate::id::NodeId;

    /// Decodes a record and encodes it again; `None` if it cannot be decoded.
    pub(crate) fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(StatRecord::decode(bytes).ok()?.encode())
    }

    /// Returns encoded records: one without entries, and one with two.
    pub(crate) fn samples() -> Vec<Vec<u8>> {
        let (node, times) = (NodeId::of(b"node"), NodeId::of(b"times"));
        let own_fingerprint =
            StatFingerprint { mode: 0o040_755, size: 4096, mtime: 5, ctime: i64::MAX, inode: u64::MAX };
        let file = StatFingerprint { mode: 0o100_644, size: 3, mtime: -1, ctime: 9, inode: 12 };
        let entries = vec![
            StatEntry { name: b"a".to_vec(), fingerprint: file, reliable: true },
            StatEntry {
                name: b"b".to_vec(),
                fingerprint: StatFingerprint::of_directory_content(0o040_700, node, times),
                reliable: false,
            },
        ];
        let small =
            StatRecord { node, times_node: times, own_fingerprint, own_reliable: false, entries: Vec::new() };
        let large = StatRecord { entries, own_reliable: true, ..small.clone() };
        vec![small.encode(), large.encode()]
    }
}
