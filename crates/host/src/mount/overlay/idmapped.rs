//! Overlays of layers that are shown to the user of a sandbox.
//!
//! An overlay cannot be shown as another user's, its layers can. Since Linux 6.15 the kernel makes an overlay of layers that are
//! mounted nowhere. Before, they have to be mounted where whoever makes it looks: in mounts of a thread's own, each over what
//! it shows, so that nobody else sees them and nothing is left of them when the thread, or the process, ends.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, mount_change};

use super::config::{Overlay, Xattrs};
use super::{context, diagnosis};
use crate::error::{Doing as _, HostError, Result};
use crate::machine;
use crate::mount::idmap::Shown;
use crate::mount::mounts::{self, Access};

/// An overlay that is mounted nowhere.
pub(super) fn make(xattrs: Xattrs, overlay: &Overlay<'_>, user: u32) -> Result<OwnedFd> {
    let shown = Shown::to(user)?;
    if machine::kernel() >= (6, 15) {
        return of_detached(xattrs, overlay, &shown);
    }
    apart(xattrs, overlay, &shown)
}

/// The directory that upper and work are in: the kernel wants both in one mount.
fn around<'a>(overlay: &Overlay<'a>) -> Result<&'a Path> {
    let (upper, work) = (overlay.upper.parent(), overlay.work.parent());
    let both = upper.filter(|_| upper == work);
    both.ok_or_else(|| HostError::other("upper and work are not in one directory"))
}

fn of_detached(xattrs: Xattrs, overlay: &Overlay<'_>, shown: &Shown) -> Result<OwnedFd> {
    let around = shown.take_up(around(overlay)?)?;
    let open = |path: &Path| match path.file_name() {
        Some(name) if [overlay.upper, overlay.work].contains(&path) => beneath(around.as_fd(), name, overlay),
        _ => shown.take_up(path),
    };
    let made = context::make_of(xattrs, overlay, &open)?;
    made.ok_or_else(|| HostError::other("the kernel makes overlays only at their place"))
}

fn beneath(directory: BorrowedFd<'_>, name: &OsStr, overlay: &Overlay<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
        .map_err(|errno| diagnosis::refused(overlay, errno, Vec::new()))
}

/// The same for older kernels.
fn apart(xattrs: Xattrs, overlay: &Overlay<'_>, shown: &Shown) -> Result<OwnedFd> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("overlay-apart".to_owned());
        let making = thread.spawn_scoped(scope, || in_own_mounts(xattrs, overlay, shown));
        let making = making.doing("start a thread")?;
        making.join().unwrap_or_else(|_| Err(HostError::other("the thread that mounts has ended")))
    })
}

fn in_own_mounts(xattrs: Xattrs, overlay: &Overlay<'_>, shown: &Shown) -> Result<OwnedFd> {
    // SAFETY: the call takes a number, and concerns this thread alone.
    let own = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    let own = if own == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    own.doing("make mounts of a thread's own")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .doing("keep mounts to a thread")?;
    for path in overlay.lower.iter().map(std::path::PathBuf::as_path).chain([around(overlay)?]) {
        mounts::attach(shown.take_up(path)?.as_fd(), path)?;
    }
    match context::make(xattrs, overlay)? {
        Some(tree) => Ok(tree),
        None => {
            context::mount_by_options(xattrs, overlay)?;
            mounts::detached(overlay.at, Access::Write)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, chown};
    use std::path::PathBuf;

    /// Every way of making one gives the same.
    #[test]
    fn layers_are_shown_on_older_kernels_too() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let user = 0x7800_0001;
        let (shared, _) =
            crate::namespace::sandbox_ids::owner(&crate::namespace::holder::Holder::Machine).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (number, way) in [apart, of_detached].into_iter().enumerate() {
            if number == 1 && machine::kernel() < (6, 15) {
                continue;
            }
            let lower: Vec<PathBuf> = (0..3).map(|layer| path(&format!("{number}/{layer}"))).collect();
            for (layer, at) in lower.iter().enumerate() {
                fs::create_dir_all(at).unwrap();
                fs::write(at.join(layer.to_string()), "old").unwrap();
                chown(at.join(layer.to_string()), Some(shared), Some(shared)).unwrap();
            }
            let [upper, work, at] = ["upper", "work", "at"].map(|name| path(&format!("{number}/{name}")));
            for made in [&upper, &work, &at] {
                fs::create_dir(made).unwrap();
            }
            let overlay = Overlay { lower: &lower, upper: &upper, work: &work, at: &at, user: Some(user) };
            let tree = way(Xattrs::Trusted, &overlay, &Shown::to(user).unwrap()).unwrap();
            let mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounted().contains(directory.path().to_str().unwrap()), "{}", mounted());
            mounts::attach(tree.as_fd(), &at).unwrap();
            assert_eq!(fs::metadata(at.join("2")).unwrap().uid(), user);
            fs::write(at.join("2"), "new").unwrap();
            assert_eq!(fs::metadata(upper.join("2")).unwrap().uid(), shared);
            rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}
