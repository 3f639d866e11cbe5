//! Overlays of id-mapped layers.
//!
//! An overlay cannot be id-mapped, but its layers can. Since Linux 6.15 the kernel creates an overlay of
//! detached mounts. Before, they have to be mounted where the creating thread resolves them: in a mount
//! namespace of its own, each over its original, so that they are invisible to others and disappear with the
//! thread or process.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, mount_change};

use super::config::{Overlay, Xattrs};
use super::{context, diagnosis};
use crate::error::{Context as _, HostError, Result};
use crate::machine;
use crate::mount::idmap::IdMap;
use crate::mount::mounts::{self, Access};

/// Creates a detached overlay.
pub(super) fn create(xattrs: Xattrs, overlay: &Overlay<'_>, user: u32) -> Result<OwnedFd> {
    let id_map = IdMap::for_user(user)?;
    if machine::kernel_version() >= (6, 15) {
        return of_detached(xattrs, overlay, &id_map);
    }
    in_own_thread(xattrs, overlay, &id_map)
}

/// Returns the directory of upper and work directory, which must be in one mount.
fn parent_of<'a>(overlay: &Overlay<'a>) -> Result<&'a Path> {
    let (upper, work) = (overlay.upper.parent(), overlay.work.parent());
    let both = upper.filter(|_| upper == work);
    both.ok_or_else(|| HostError::other("upper and work directory have different parents"))
}

fn of_detached(xattrs: Xattrs, overlay: &Overlay<'_>, id_map: &IdMap) -> Result<OwnedFd> {
    let parent = id_map.clone_mount(parent_of(overlay)?)?;
    let open = |path: &Path| match path.file_name() {
        Some(name) if [overlay.upper, overlay.work].contains(&path) => {
            open_beneath(parent.as_fd(), name, overlay)
        }
        _ => id_map.clone_mount(path),
    };
    let made = context::create_from(xattrs, overlay, &open)?;
    made.ok_or_else(|| HostError::other("this kernel cannot create detached overlays"))
}

fn open_beneath(directory: BorrowedFd<'_>, name: &OsStr, overlay: &Overlay<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
        .map_err(|errno| diagnosis::rejected(overlay, errno, Vec::new()))
}

/// Creates the overlay in a thread with its own mount namespace, for older kernels.
fn in_own_thread(xattrs: Xattrs, overlay: &Overlay<'_>, id_map: &IdMap) -> Result<OwnedFd> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("overlay-idmap".to_owned());
        let making = thread.spawn_scoped(scope, || in_own_mounts(xattrs, overlay, id_map));
        let making = making.context("start a thread")?;
        making.join().unwrap_or_else(|_| Err(HostError::other("the mount thread panicked")))
    })
}

fn in_own_mounts(xattrs: Xattrs, overlay: &Overlay<'_>, id_map: &IdMap) -> Result<OwnedFd> {
    // SAFETY: the call takes an integer, and affects this thread only.
    let own = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    let own = if own == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    own.context("create a mount namespace for a thread")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("make the mounts of a thread private")?;
    for path in overlay.lower.iter().map(std::path::PathBuf::as_path).chain([parent_of(overlay)?]) {
        mounts::attach(id_map.clone_mount(path)?.as_fd(), path)?;
    }
    match context::create(xattrs, overlay)? {
        Some(tree) => Ok(tree),
        None => {
            context::mount_by_options(xattrs, overlay)?;
            mounts::clone_tree(overlay.at, Access::Write)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, chown};
    use std::path::PathBuf;

    /// Both methods of creating an overlay have the same result.
    #[test]
    fn layers_are_idmapped_on_older_kernels_too() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let user = 0x7800_0001;
        let (shared, _) =
            crate::namespace::sandbox_ids::owner(&crate::namespace::holder::NamespaceHolder::Host).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (number, create) in [in_own_thread, of_detached].into_iter().enumerate() {
            if number == 1 && machine::kernel_version() < (6, 15) {
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
            let tree = create(Xattrs::Trusted, &overlay, &IdMap::for_user(user).unwrap()).unwrap();
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
