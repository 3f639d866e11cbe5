//! Reasons why the kernel does not mount an overlay. It writes most of them only to its log, so the likely
//! reasons are checked here.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use linux_raw_sys::general::{
    CIFS_SUPER_MAGIC, EXFAT_SUPER_MAGIC, FUSE_SUPER_MAGIC, MSDOS_SUPER_MAGIC, NFS_SUPER_MAGIC,
    OVERLAYFS_SUPER_MAGIC, RAMFS_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, V9FS_MAGIC,
};
use rustix::fs::statfs;
use rustix::io::Errno;

use super::config::{LAYERS_MAX, Overlay, Upper};
use crate::error::HostError;

fn failed(overlay: &Overlay<'_>, errno: Errno, reason: String) -> HostError {
    HostError::Overlay { mount_point: overlay.mount_point.to_owned(), source: io::Error::from(errno), reason }
}

/// Returns the error for no layers, or too many.
pub(super) fn layer_count(overlay: &Overlay<'_>) -> HostError {
    let reason = match overlay.lower.len() {
        0 => "there is no lower layer".to_owned(),
        count => format!("{count} layers are too many; the kernel supports {LAYERS_MAX}"),
    };
    failed(overlay, Errno::INVAL, reason)
}

/// Returns the error for options that are too long for `mount(2)`.
pub(super) fn options_too_long(overlay: &Overlay<'_>) -> HostError {
    let count = overlay.lower.len();
    failed(
        overlay,
        Errno::TOOBIG,
        format!("{count} layers are too many; Linux before 6.7 supports about 200"),
    )
}

/// Returns the error for a kernel or user without overlays.
pub(super) fn unavailable(overlay: &Overlay<'_>, errno: Errno) -> HostError {
    let reason = match errno {
        Errno::NODEV => "this kernel has no overlay filesystem; load it with `modprobe overlay`",
        Errno::NOSYS => "overlays need Linux 5.11",
        Errno::PERM => {
            "overlays are not allowed here; an ordinary user needs Linux 5.11 and a user namespace, \
             and a container may forbid mounting"
        }
        _ => "",
    };
    failed(overlay, errno, reason.to_owned())
}

/// Returns the error for directories that the kernel rejects.
pub(super) fn rejected(overlay: &Overlay<'_>, errno: Errno, mut messages: Vec<String>) -> HostError {
    messages.extend(problems(overlay));
    failed(overlay, errno, messages.join("; "))
}

/// Reads the messages of the kernel about a filesystem context.
pub(super) fn messages(context: impl AsFd) -> Vec<String> {
    let mut messages = Vec::new();
    let mut text = [0; 1024];
    while let Ok(length @ 1..) = rustix::io::read(&context, &mut text) {
        let message = String::from_utf8_lossy(&text[..length]);
        // Messages start with a letter for their severity.
        let message = message.trim().split_once(' ').map_or("", |(_, message)| message);
        messages.push(format!("kernel message: {message}"));
    }
    messages
}

/// Checks the directories for likely problems.
fn problems(overlay: &Overlay<'_>) -> Vec<String> {
    let all = overlay.lower.iter().map(std::path::PathBuf::as_path).chain(overlay.writable_dirs());
    let absent = all.filter(|path| !path.is_dir());
    let mut found: Vec<String> =
        absent.take(1).map(|path| format!("{} is not an accessible directory", path.display())).collect();
    let Some(Upper { directory, work }) = overlay.upper else { return found };
    if let Some(filesystem) = unsuitable(directory) {
        let upper = directory.display();
        found.push(format!(
            "{upper} is on {filesystem}, which does not support the upper directory of an overlay"
        ));
    }
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    if device(directory) != device(work) {
        found.push("upper and work directory are on different filesystems".to_owned());
    }
    found
}

/// Returns the name of the filesystem of a path, if it lacks what an upper directory needs: file types in
/// listings, extended attributes or whiteouts.
pub(super) fn unsuitable(path: &Path) -> Option<&'static str> {
    let magic = statfs(path).ok()?.f_type as u32;
    Some(match magic {
        OVERLAYFS_SUPER_MAGIC => "another overlay",
        NFS_SUPER_MAGIC => "NFS",
        FUSE_SUPER_MAGIC => "FUSE",
        RAMFS_MAGIC => "ramfs",
        MSDOS_SUPER_MAGIC => "FAT",
        EXFAT_SUPER_MAGIC => "exFAT",
        SMB_SUPER_MAGIC | CIFS_SUPER_MAGIC | SMB2_SUPER_MAGIC => "SMB",
        V9FS_MAGIC => "9p",
        _ => return None,
    })
}
