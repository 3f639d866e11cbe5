//! Functions that are implemented differently for each operating system.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
mod macos;
#[cfg(not(target_os = "linux"))]
use macos as system;

pub(crate) use system::{
    DIRECTORY_HANDLE_FLAGS, EntryHandle, REFLINK_COPIES_XATTRS, XATTR_NOT_FOUND, create_named,
    create_unnamed, link_count, link_unnamed, mode_from_u32, mode_to_u32, preallocate, reflink,
    rename_into_place, start_writeback, sync_filesystem,
};
pub use system::{RawDir, boot_id, open_beneath, reflink_path};

/// Handling of an existing entry at the target of a rename or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfExists {
    /// Replace it.
    Replace,
    /// Fail with `EEXIST`.
    Fail,
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn rename_into_place_replaces_only_on_request() {
        let home = tempfile::tempdir().unwrap();
        for name in ["new", "old"] {
            fs::write(home.path().join(name), name).unwrap();
        }
        let directory = File::open(home.path()).unwrap();
        assert_eq!(rename_into_place(&directory, b"new", b"old", IfExists::Fail), Err(Errno::EXIST));
        rename_into_place(&directory, b"new", b"old", IfExists::Replace).unwrap();
        assert_eq!(fs::read(home.path().join("old")).unwrap(), b"new");
    }
}
