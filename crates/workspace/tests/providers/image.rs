//! File systems in image files, for tests that need a certain type or size of file system. Only root can mount them.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use workspace_test_support::requires;

/// Default size of an image in bytes: the smallest size that `mkfs.xfs` accepts. The image file is sparse.
pub(crate) const SIZE: u64 = 320 << 20;

/// Mounted image. Drop unmounts and removes it.
pub(crate) struct Image {
    /// Directory of the image file.
    _file: TempDir,
    mountpoint: TempDir,
}

impl Image {
    /// Creates an image of `size` bytes with a file system of this type, and mounts it.
    pub(crate) fn new(filesystem: &str, size: u64) -> Self {
        Self::try_new(filesystem, size).unwrap()
    }

    fn try_new(filesystem: &str, size: u64) -> Result<Self, String> {
        let (directory, mountpoint) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = directory.path().join("image");
        File::create(&file).and_then(|file| file.set_len(size)).unwrap();
        run(Command::new(program(filesystem)).arg("-q").arg(&file))?;
        run(Command::new("mount").args(["-t", filesystem, "-o", "loop"]).arg(&file).arg(mountpoint.path()))?;
        Ok(Self { _file: directory, mountpoint })
    }

    /// Returns the mountpoint.
    pub(crate) fn path(&self) -> &Path {
        self.mountpoint.path()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = unmount(self.mountpoint.path(), UnmountFlags::DETACH);
    }
}

/// Returns the program that creates a file system of this type.
fn program(filesystem: &str) -> String {
    format!("/usr/sbin/mkfs.{filesystem}")
}

/// Runs a command. Fails with its standard error.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {message}")) }
}

/// Returns true if images with a file system of this type can be created and mounted on this machine.
pub(crate) fn is_available(filesystem: &str) -> bool {
    let kernel = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_available = kernel.lines().any(|line| line.trim() == filesystem)
        && Path::new(&program(filesystem)).exists()
        && Path::new("/dev/loop-control").exists();
    requires(is_available, format_args!("{filesystem} on a loop device"))
}
