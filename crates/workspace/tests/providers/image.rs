//! File systems in image files, mounted by root.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use workspace_test_support::requires;

/// Smallest size in bytes for XFS. The image is sparse.
pub(crate) const SIZE: u64 = 320 << 20;

/// Mounted image.
pub(crate) struct Image {
    _file: TempDir,
    at: TempDir,
}

impl Image {
    pub(crate) fn new(filesystem: &str, size: u64) -> Self {
        Self::try_new(filesystem, size).unwrap()
    }

    fn try_new(filesystem: &str, size: u64) -> Result<Self, String> {
        let (directory, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = directory.path().join("image");
        File::create(&file).and_then(|file| file.set_len(size)).unwrap();
        run(Command::new(program(filesystem)).arg("-q").arg(&file))?;
        run(Command::new("mount").args(["-t", filesystem, "-o", "loop"]).arg(&file).arg(at.path()))?;
        Ok(Self { _file: directory, at })
    }

    pub(crate) fn path(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = unmount(self.at.path(), UnmountFlags::DETACH);
    }
}

fn program(filesystem: &str) -> String {
    format!("/usr/sbin/mkfs.{filesystem}")
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {message}")) }
}

/// Returns true if such images can be created and mounted here.
pub(crate) fn is_available(filesystem: &str) -> bool {
    let kernel = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_available = kernel.lines().any(|line| line.trim() == filesystem)
        && Path::new(&program(filesystem)).exists()
        && Path::new("/dev/loop-control").exists();
    requires(is_available, format_args!("{filesystem} on a loop device"))
}
