//! Small file systems that tests fill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system that only this process sees: a child that [`mounting`](crate::child::mounting) started.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts an empty file system of this size at a directory, which is created.
    pub fn mount(at: &Path, bytes: usize) -> Self {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).status();
        assert!(mounted.unwrap().success(), "cannot mount a tmpfs");
        Self(at.to_owned())
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fills the file system until `leave` bytes are free.
    pub fn fill(&self, leave: u64) {
        let stat = rustix::fs::statvfs(&self.0).unwrap();
        let free = stat.f_bavail * stat.f_frsize;
        fs::write(self.0.join("filler"), vec![1; free.saturating_sub(leave) as usize]).unwrap();
    }

    /// Removes what [`Self::fill`] wrote.
    pub fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}
