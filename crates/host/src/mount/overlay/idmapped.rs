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

use super::config::{Overlay, Upper, Xattrs};
use super::{diagnosis, fs_context};
use crate::error::{Context as _, HostError, Result};
use crate::host_status;
use crate::mount::idmap::IdMap;
use crate::mount::mounts::{self, Access};

/// Creates a detached overlay in which files of the UID that all sandboxes share belong to `dedicated_uid`, the UID of
/// one sandbox.
pub(super) fn create(xattrs: Xattrs, overlay: &Overlay<'_>, dedicated_uid: u32) -> Result<OwnedFd> {
    let id_map = IdMap::for_dedicated_uid(dedicated_uid)?;
    if host_status::kernel_version() >= (6, 15) {
        return create_from_detached(xattrs, overlay, &id_map);
    }
    create_in_thread(xattrs, overlay, &id_map)
}

/// Returns the parent of upper and work directory; `None` for a read-only overlay. It must be the same, because the two
/// must be in one mount.
fn parent_of<'a>(overlay: &Overlay<'a>) -> Result<Option<&'a Path>> {
    let Some(Upper { directory, work }) = overlay.upper else { return Ok(None) };
    let (upper, work) = (directory.parent(), work.parent());
    let common = upper.filter(|_| upper == work);
    common.map(Some).ok_or_else(|| HostError::other("upper and work directory have different parents"))
}

/// Creates the overlay of detached mounts, for kernels since 6.15.
fn create_from_detached(xattrs: Xattrs, overlay: &Overlay<'_>, id_map: &IdMap) -> Result<OwnedFd> {
    let parent = parent_of(overlay)?.map(|path| id_map.clone_mount(path)).transpose()?;
    let open = |path: &Path| match (&parent, path.file_name()) {
        (Some(parent), Some(name)) if overlay.writable_dirs().any(|writable| writable == path) => {
            open_beneath(parent.as_fd(), name, overlay)
        }
        _ => id_map.clone_mount(path),
    };
    let created = fs_context::create_from(xattrs, overlay, &open)?;
    created.ok_or_else(|| HostError::other("this kernel cannot create detached overlays"))
}

fn open_beneath(directory: BorrowedFd<'_>, name: &OsStr, overlay: &Overlay<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let no_kernel_messages = Vec::new();
    openat(directory, name, flags, Mode::empty())
        .map_err(|errno| diagnosis::rejected(overlay, errno, no_kernel_messages))
}

/// Creates the overlay in a thread with its own mount namespace, for older kernels.
fn create_in_thread(xattrs: Xattrs, overlay: &Overlay<'_>, id_map: &IdMap) -> Result<OwnedFd> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("overlay-idmap".to_owned());
        let thread = builder.spawn_scoped(scope, || create_in_new_namespace(xattrs, overlay, id_map));
        let thread = thread.context("start a thread")?;
        thread.join().unwrap_or_else(|_| Err(HostError::other("the mount thread panicked")))
    })
}

/// Creates the overlay in a new mount namespace of this thread, in which the id-mapped layers are mounted
/// over the original ones.
fn create_in_new_namespace(xattrs: Xattrs, overlay: &Overlay<'_>, id_map: &IdMap) -> Result<OwnedFd> {
    // SAFETY: the call takes an integer, and affects this thread only.
    let status = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    let unshared = if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    unshared.context("create a mount namespace for a thread")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("make the mounts of a thread private")?;
    for path in overlay.lower.iter().map(std::path::PathBuf::as_path).chain(parent_of(overlay)?) {
        mounts::attach(id_map.clone_mount(path)?.as_fd(), path)?;
    }
    match fs_context::create(xattrs, overlay)? {
        Some(tree) => Ok(tree),
        // This kernel creates an overlay only at its mount point.
        None => {
            fs_context::mount_by_options(xattrs, overlay)?;
            mounts::clone_tree(overlay.mount_point, Access::Write)
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
        let dedicated_uid = 0x7800_0001;
        // UID on the host that the files of all sandboxes belong to.
        let (shared_uid, _) = crate::namespace::sandbox_ids::shared_sandbox_ids(
            &crate::namespace::holder::NamespaceHolder::None,
        )
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (number, create) in [create_in_thread, create_from_detached].into_iter().enumerate() {
            if number == 1 && host_status::kernel_version() < (6, 15) {
                continue;
            }
            let lower: Vec<PathBuf> = (0..3).map(|layer| path(&format!("{number}/{layer}"))).collect();
            for (layer, at) in lower.iter().enumerate() {
                fs::create_dir_all(at).unwrap();
                fs::write(at.join(layer.to_string()), "old").unwrap();
                chown(at.join(layer.to_string()), Some(shared_uid), Some(shared_uid)).unwrap();
            }
            let [upper, work, at] = ["upper", "work", "at"].map(|name| path(&format!("{number}/{name}")));
            for made in [&upper, &work, &at] {
                fs::create_dir(made).unwrap();
            }
            let overlay = Overlay {
                lower: &lower,
                upper: Some(Upper { directory: &upper, work: &work }),
                mount_point: &at,
                idmap_uid: Some(dedicated_uid),
            };
            let tree =
                create(Xattrs::Trusted, &overlay, &IdMap::for_dedicated_uid(dedicated_uid).unwrap()).unwrap();
            let mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounted().contains(directory.path().to_str().unwrap()), "{}", mounted());
            mounts::attach(tree.as_fd(), &at).unwrap();
            assert_eq!(fs::metadata(at.join("2")).unwrap().uid(), dedicated_uid);
            fs::write(at.join("2"), "new").unwrap();
            assert_eq!(fs::metadata(upper.join("2")).unwrap().uid(), shared_uid);
            rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}
