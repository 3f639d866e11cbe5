//! Merge of permission bits and extended attributes.
//!
//! Each attribute is merged separately: the side that changed it wins. If both sides changed it, our side
//! wins and a conflict is reported, except for read and write bits, which usually depend on the umask of the
//! writer.

use workspace_state::{DirectoryNode, FileNode, Xattrs};

/// Permission bits that users set on purpose: execute, set-user-ID, set-group-ID and sticky.
const SIGNIFICANT_BITS: u16 = 0o7111;

/// Merged attributes of an entry.
#[derive(Debug, Default)]
pub(super) struct MergedAttributes {
    pub(super) mode: u16,
    pub(super) xattrs: Xattrs,
    /// Set if the sides have different values of a significant permission bit ([`SIGNIFICANT_BITS`]) and neither equals the
    /// base.
    pub(super) modes_clash: bool,
    /// Set if both sides changed an extended attribute differently.
    pub(super) xattrs_clash: bool,
}

/// Attributes of one version.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeAttributes<'a> {
    pub(super) mode: u16,
    pub(super) xattrs: &'a Xattrs,
}

impl<'a> NodeAttributes<'a> {
    pub(super) fn of_directory(directory: &'a DirectoryNode) -> Self {
        Self { mode: directory.mode, xattrs: &directory.xattrs }
    }

    pub(super) fn of_file(file: &'a FileNode) -> Self {
        Self { mode: file.mode, xattrs: &file.xattrs }
    }
}

/// Merges the attributes of three versions; without a base, differing significant bits clash.
pub(super) fn merge(
    base: Option<NodeAttributes<'_>>,
    ours: NodeAttributes<'_>,
    theirs: NodeAttributes<'_>,
) -> MergedAttributes {
    let bits = |mask: u16| merge_one(base.map(|base| base.mode & mask), ours.mode & mask, theirs.mode & mask);
    let ((significant, modes_clash), (rest, _)) = (bits(SIGNIFICANT_BITS), bits(!SIGNIFICANT_BITS));
    let no_xattrs = Xattrs::new();
    let base = base.map_or(&no_xattrs, |base| base.xattrs);
    let mut merged =
        MergedAttributes { mode: significant | rest, modes_clash, ..MergedAttributes::default() };
    for name in ours.xattrs.keys().chain(theirs.xattrs.keys()) {
        let [base, ours, theirs] = [base, ours.xattrs, theirs.xattrs].map(|xattrs| xattrs.get(name));
        let (value, clash) = merge_one(Some(base), ours, theirs);
        merged.xattrs_clash |= clash;
        if let Some(value) = value {
            merged.xattrs.insert(name.clone(), value.clone());
        }
    }
    merged
}

/// Returns the merged value, and true if both sides changed it differently.
fn merge_one<T: PartialEq + Copy>(base: Option<T>, ours: T, theirs: T) -> (T, bool) {
    if ours == theirs || base == Some(theirs) {
        (ours, false)
    } else if base == Some(ours) {
        (theirs, false)
    } else {
        (ours, true)
    }
}
