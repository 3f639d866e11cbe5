//! Permission bits and extended attributes.
//!
//! Each is merged alone: the side that changed it wins. Where both did, ours stays and a conflict is told, except for
//! read and write bits: those depend on who wrote the file, and nobody means anything by them.

use workspace_state::{DirectoryNode, FileNode, Xattrs};

/// Bits that mean something: execution, set-id, sticky.
const MEANT: u16 = 0o7111;

/// Attributes of three versions, merged.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) mode: u16,
    pub(super) xattrs: Xattrs,
    pub(super) modes_clash: bool,
    pub(super) xattrs_clash: bool,
}

/// What a version has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Has<'a> {
    pub(super) mode: u16,
    pub(super) xattrs: &'a Xattrs,
}

impl<'a> Has<'a> {
    pub(super) fn of(directory: &'a DirectoryNode) -> Self {
        Self { mode: directory.mode, xattrs: &directory.xattrs }
    }

    pub(super) fn of_file(file: &'a FileNode) -> Self {
        Self { mode: file.mode, xattrs: &file.xattrs }
    }
}

pub(super) fn merge(base: Option<Has<'_>>, ours: Has<'_>, theirs: Has<'_>) -> Merged {
    let bits = |mask: u16| one(base.map(|base| base.mode & mask), ours.mode & mask, theirs.mode & mask);
    let ((meant, modes_clash), (rest, _)) = (bits(MEANT), bits(!MEANT));
    let nothing = Xattrs::new();
    let base = base.map_or(&nothing, |base| base.xattrs);
    let mut merged = Merged { mode: meant | rest, modes_clash, ..Merged::default() };
    for name in ours.xattrs.keys().chain(theirs.xattrs.keys()) {
        let [base, ours, theirs] = [base, ours.xattrs, theirs.xattrs].map(|xattrs| xattrs.get(name));
        let (value, clash) = one(Some(base), ours, theirs);
        merged.xattrs_clash |= clash;
        if let Some(value) = value {
            merged.xattrs.insert(name.clone(), value.clone());
        }
    }
    merged
}

/// The value, and whether both sides changed it differently.
fn one<T: PartialEq + Copy>(base: Option<T>, ours: T, theirs: T) -> (T, bool) {
    if ours == theirs || base == Some(theirs) {
        (ours, false)
    } else if base == Some(ours) {
        (theirs, false)
    } else {
        (ours, true)
    }
}
