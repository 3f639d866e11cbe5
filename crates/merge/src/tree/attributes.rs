//! Merge of permission bits and extended attributes.
//!
//! Each permission bit and each extended attribute is merged by itself: the side that changed it wins. Both sides can
//! change a bit only to the same value, so permission bits conflict only if there is no base. If both sides changed an
//! extended attribute differently, our side wins and a conflict is reported.

use workspace_state::{DirectoryNode, FileNode, Xattrs};

/// Mask of the permission bits that users set on purpose: execute, set-user-ID, set-group-ID and sticky. The others,
/// read and write, usually depend on the umask of the writer.
const SIGNIFICANT_BITS: u16 = 0o7111;

/// Merged attributes of an entry.
#[derive(Debug, Default)]
pub(super) struct MergedAttributes {
    pub(super) mode: u16,
    pub(super) xattrs: Xattrs,
    /// Set if there is no base and the sides differ in [`SIGNIFICANT_BITS`].
    pub(super) modes_clash: bool,
    /// Set if both sides changed an extended attribute to different values.
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

/// Merges the attributes of three versions. Without a base, our permission bits win, different [`SIGNIFICANT_BITS`]
/// clash, and an extended attribute counts as added.
pub(super) fn merge(
    base: Option<NodeAttributes<'_>>,
    ours: NodeAttributes<'_>,
    theirs: NodeAttributes<'_>,
) -> MergedAttributes {
    let (mode, modes_clash) = match base {
        // The bits that a side changed are flipped in the base.
        Some(base) => (base.mode ^ ((base.mode ^ ours.mode) | (base.mode ^ theirs.mode)), false),
        None => (ours.mode, (ours.mode ^ theirs.mode) & SIGNIFICANT_BITS != 0),
    };
    let no_xattrs = Xattrs::new();
    let base = base.map_or(&no_xattrs, |base| base.xattrs);
    let mut merged = MergedAttributes { mode, modes_clash, ..MergedAttributes::default() };
    for name in ours.xattrs.keys().chain(theirs.xattrs.keys()) {
        let [base, ours, theirs] = [base, ours.xattrs, theirs.xattrs].map(|xattrs| xattrs.get(name));
        let (value, clash) = merge_one(base, ours, theirs);
        merged.xattrs_clash |= clash;
        if let Some(value) = value {
            merged.xattrs.insert(name.clone(), value.clone());
        }
    }
    merged
}

/// Returns the merged value, and true if both sides changed it to different values.
fn merge_one<T: PartialEq + Copy>(base: T, ours: T, theirs: T) -> (T, bool) {
    if ours == theirs || base == theirs {
        (ours, false)
    } else if base == ours {
        (theirs, false)
    } else {
        (ours, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged_mode(base: Option<u16>, ours: u16, theirs: u16) -> (u16, bool) {
        let xattrs = Xattrs::new();
        let [ours, theirs] = [ours, theirs].map(|mode| NodeAttributes { mode, xattrs: &xattrs });
        let merged = merge(base.map(|mode| NodeAttributes { mode, xattrs: &xattrs }), ours, theirs);
        (merged.mode, merged.modes_clash)
    }

    /// Regression test: the bits were compared in two groups, so a bit that only one side changed could conflict, or
    /// could be lost.
    #[test]
    fn each_permission_bit_is_merged_by_itself() {
        for (ours, theirs, expected) in [
            (0o755, 0o2644, 0o2755),
            (0o664, 0o640, 0o660),
            (0o744, 0o755, 0o755),
            (0o600, 0o644, 0o600),
            (0o444, 0o1644, 0o1444),
        ] {
            assert_eq!(merged_mode(Some(0o644), ours, theirs), (expected, false), "{ours:o} {theirs:o}");
            assert_eq!(merged_mode(Some(0o644), theirs, ours), (expected, false), "{theirs:o} {ours:o}");
        }
    }

    #[test]
    fn added_files_conflict_only_in_significant_bits() {
        assert_eq!(merged_mode(None, 0o755, 0o644), (0o755, true));
        assert_eq!(merged_mode(None, 0o664, 0o644), (0o664, false));
        assert_eq!(merged_mode(None, 0o644, 0o2644), (0o644, true));
    }
}
