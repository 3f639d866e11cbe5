//! Why the kernel does not mount an overlay. Most of what it knows it tells only to its log, so what can be the matter
//! is looked at here.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::statfs;
use rustix::io::Errno;

use super::config::{LAYERS, Overlay};
use crate::error::HostError;

fn failed(overlay: &Overlay<'_>, errno: Errno, reason: String) -> HostError {
    HostError::Overlay { at: overlay.at.to_owned(), source: io::Error::from(errno), reason }
}

/// There are none, or too many.
pub(super) fn layers(overlay: &Overlay<'_>) -> HostError {
    let reason = match overlay.lower.len() {
        0 => "there is no layer below".to_owned(),
        count => format!("{count} layers are too many, the kernel takes {LAYERS}"),
    };
    failed(overlay, Errno::INVAL, reason)
}

/// The names of all layers are longer than what `mount(2)` takes.
pub(super) fn options(overlay: &Overlay<'_>) -> HostError {
    let count = overlay.lower.len();
    failed(overlay, Errno::TOOBIG, format!("{count} layers are too many, kernels before 6.7 take about 200"))
}

/// Overlays are not to be had at all.
pub(super) fn begin(overlay: &Overlay<'_>, errno: Errno) -> HostError {
    let reason = match errno {
        Errno::NODEV => "this kernel has no overlay filesystem; load it with `modprobe overlay`",
        Errno::NOSYS => "overlays need Linux 5.11",
        Errno::PERM => {
            "overlays are not allowed here; an ordinary user needs Linux 5.11 and a user namespace of his own, \
             and a container may forbid mounting"
        }
        _ => "",
    };
    failed(overlay, errno, reason.to_owned())
}

/// These directories the kernel does not take.
pub(super) fn refused(overlay: &Overlay<'_>, errno: Errno, mut said: Vec<String>) -> HostError {
    said.extend(found(overlay));
    failed(overlay, errno, said.join("; "))
}

/// What the kernel left to read about an attempt.
pub(super) fn messages(context: impl AsFd) -> Vec<String> {
    let mut messages = Vec::new();
    let mut text = [0; 1024];
    while let Ok(length @ 1..) = rustix::io::read(&context, &mut text) {
        let message = String::from_utf8_lossy(&text[..length]);
        // It begins with a letter for how bad it is.
        let message = message.trim().split_once(' ').map_or("", |(_, message)| message);
        messages.push(format!("the kernel says: {message}"));
    }
    messages
}

/// What is wrong with the directories.
fn found(overlay: &Overlay<'_>) -> Vec<String> {
    let all = overlay.lower.iter().map(std::path::PathBuf::as_path).chain([overlay.upper, overlay.work]);
    let absent = all.filter(|path| !path.is_dir());
    let mut found: Vec<String> = absent
        .take(1)
        .map(|path| format!("{} is no directory that can be reached", path.display()))
        .collect();
    if let Some(filesystem) = unsuitable(overlay.upper) {
        let upper = overlay.upper.display();
        found.push(format!("{upper} is on {filesystem}, which cannot be written to through an overlay"));
    }
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    if device(overlay.upper) != device(overlay.work) {
        found.push("upper and work are not on one filesystem".to_owned());
    }
    found
}

/// The name of the filesystem of a path, if it lacks what an upper needs: file types in listings, attributes, or
/// whiteouts.
pub(super) fn unsuitable(path: &Path) -> Option<&'static str> {
    let magic = statfs(path).ok()?.f_type as u32;
    Some(match magic {
        0x794c_7630 => "another overlay",
        0x6969 => "NFS",
        0x6573_5546 => "FUSE",
        0x8584_58f6 => "ramfs",
        0x4d44 => "FAT",
        0x2011_bab0 => "exFAT",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9p",
        _ => return None,
    })
}
