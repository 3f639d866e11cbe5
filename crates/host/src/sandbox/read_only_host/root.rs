//! Root filesystem of a program over the read-only host: the host's files, with mounts over some of them. It is built
//! from inside the namespaces of the program.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{chdir, pivot_root};

use super::Mount;
use crate::error::{Context as _, HostError, Result};
use crate::mount::mounts::{Access, attach, bind, clone_tree};
use crate::mount::overlay::config::{Overlay, Upper, Xattrs};
use crate::mount::overlay::local;
use crate::mount::root::{
    NEW_ROOT, create_dir, in_new_root, mount_dev, mount_kernel_filesystems, mount_tmpfs, remount_read_only,
    tmpfs_options,
};
use crate::network::egress::RESOLV_CONF;

/// Path below the new root at which the tmpfs is mounted until its directories are bound to their places. `/proc` is
/// mounted over it later.
const TMPFS_STAGING: &str = "proc";
/// Writable directories in the tmpfs, with their modes.
const TMPFS_DIRS: [(&str, u32); 4] =
    [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755), ("/var/run", 0o755)];
/// Maximum number of symlinks in a path, as in Linux.
const SYMLINKS_MAX: u32 = 40;
/// Directory of the tmpfs that becomes `/dev/shm`.
const SHARED_MEMORY: &str = "shm";
/// Empty file and directory without permissions, in the tmpfs, that are bound over hidden paths.
const EMPTY_FILE: &str = "empty-file";
const EMPTY_DIRECTORY: &str = "empty-directory";

/// Root filesystem to build.
pub(super) struct Root<'a> {
    pub(super) mounts: &'a [Mount],
    pub(super) user: u32,
    pub(super) group: u32,
    /// Memory limit of the sandbox, in bytes.
    pub(super) memory_limit: Option<u64>,
    /// True if a DNS server listens inside.
    pub(super) has_nameserver: bool,
}

/// Descriptors of a mount's directories, opened before the new root is mounted over [`NEW_ROOT`] and hides
/// the directories there.
enum Opened {
    Hide,
    Show(OwnedFd),
    Overlay { lower: OwnedFd, upper: OwnedFd, work: OwnedFd },
}

impl Root<'_> {
    /// Builds the root and makes it the root of this process.
    pub(super) fn build(&self) -> Result<()> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .context("make the mounts of the sandbox private")?;
        let opened = self.mounts.iter().map(open).collect::<Result<Vec<_>>>()?;
        let dirs = tmpfs_dirs();
        let host = clone_tree(Path::new("/"), Access::Read)?;
        attach(host.as_fd(), Path::new(NEW_ROOT))?;
        self.mount_writable_tmpfs(&dirs)?;
        for (number, (path, _)) in dirs.iter().enumerate() {
            bind(&in_new_root(TMPFS_STAGING).join(number.to_string()), &in_new_root(path), Access::Write)?;
        }
        let mut hidden_parents = Vec::new();
        for (index, (mount, opened)) in self.mounts.iter().zip(&opened).enumerate() {
            hidden_parents.extend(self.mount(index, mount, opened)?);
        }
        if self.has_nameserver {
            self.bind_resolv_conf()?;
        }
        mount_dev()?;
        bind(&in_new_root(TMPFS_STAGING).join(SHARED_MEMORY), &in_new_root("dev/shm"), Access::WriteNoExec)?;
        for parent in hidden_parents {
            remount_read_only(&parent, MountFlags::empty())?;
        }
        unmount(in_new_root(TMPFS_STAGING), UnmountFlags::DETACH).context("detach the tmpfs")?;
        mount_kernel_filesystems(self.memory_limit)?;
        pivot()
    }

    /// Mounts one tmpfs for all writable directories, so that one limit applies to all of them. In the tmpfs,
    /// they are named by their index in `dirs`.
    fn mount_writable_tmpfs(&self, dirs: &[(PathBuf, u32)]) -> Result<()> {
        // `tmpfs_options` halves this, so without a limit the tmpfs gets a quarter of the host's memory.
        let memory = self.memory_limit.or_else(half_of_memory);
        mount_tmpfs(in_new_root(TMPFS_STAGING), &tmpfs_options(memory), MountFlags::empty())?;
        let numbered = dirs.iter().enumerate().map(|(number, (_, mode))| (number.to_string(), *mode));
        for (name, mode) in
            numbered.chain([(SHARED_MEMORY.to_owned(), 0o1777), (EMPTY_DIRECTORY.to_owned(), 0)])
        {
            let path = in_new_root(TMPFS_STAGING).join(&name);
            create_dir(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                .context(format!("set the permissions of {name}"))?;
        }
        let empty_file = in_new_root(TMPFS_STAGING).join(EMPTY_FILE);
        fs::write(&empty_file, "").context("create an empty file")?;
        fs::set_permissions(&empty_file, fs::Permissions::from_mode(0o0))
            .context("change the mode of an empty file")?;
        if let Some(number) = dirs.iter().position(|(path, _)| path == Path::new("/run")) {
            let runtime_dir =
                in_new_root(TMPFS_STAGING).join(number.to_string()).join("user").join(self.user.to_string());
            create_dir(&runtime_dir)?;
            chown(&runtime_dir, Some(self.user), Some(self.group))
                .context("change the owner of the runtime directory")?;
            fs::set_permissions(&runtime_dir, fs::Permissions::from_mode(0o700))
                .context("change the mode of the runtime directory")?;
        }
        Ok(())
    }

    /// Mounts `mount`. A hidden directory with visible mounts below becomes a tmpfs for their mount points;
    /// then its path is returned, and it must be made read-only once they are mounted.
    fn mount(&self, index: usize, mount: &Mount, opened: &Opened) -> Result<Option<PathBuf>> {
        let path = mount.path();
        let mount_point = in_new_root(&path);
        match opened {
            Opened::Hide => {
                let Ok(found) = fs::symlink_metadata(&mount_point) else { return Ok(None) };
                if found.is_symlink() {
                    return Ok(None);
                }
                let has_mounts_below = self.mounts[index + 1..]
                    .iter()
                    .any(|later| !matches!(later, Mount::Hide(_)) && later.path().starts_with(&path));
                if found.is_dir() && has_mounts_below {
                    mount_tmpfs(&mount_point, "mode=0755,size=256k", MountFlags::empty())?;
                    return Ok(Some(mount_point));
                }
                let cover = if found.is_dir() { EMPTY_DIRECTORY } else { EMPTY_FILE };
                bind(&in_new_root(TMPFS_STAGING).join(cover), &mount_point, Access::Read)?;
            }
            Opened::Show(tree) => {
                let is_directory = fs::metadata(format!("/proc/self/fd/{}", tree.as_raw_fd()))
                    .is_ok_and(|found| found.is_dir());
                let kind = if is_directory { MountPoint::Directory } else { MountPoint::File };
                create_mount_point(&mount_point, kind)?;
                attach(tree.as_fd(), &mount_point)?;
            }
            Opened::Overlay { lower, upper, work } => {
                create_mount_point(&mount_point, MountPoint::Directory)?;
                let name = |fd: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                let (lower, upper, work) = ([name(lower)], name(upper), name(work));
                let overlay = Overlay {
                    lower: &lower,
                    upper: Some(Upper { directory: &upper, work: &work }),
                    mount_point: &mount_point,
                    idmap_uid: None,
                };
                local::mount_on_top(Xattrs::User, &overlay).map_err(|error| error.with_mount_point(&path))?;
            }
        }
        Ok(None)
    }

    /// Points programs to the DNS server inside.
    fn bind_resolv_conf(&self) -> Result<()> {
        let file = in_new_root(TMPFS_STAGING).join("resolv.conf");
        fs::write(&file, RESOLV_CONF).context("write resolv.conf")?;
        let mount_point = resolve_in(Path::new(NEW_ROOT), Path::new("/etc/resolv.conf"));
        match create_mount_point(&mount_point, MountPoint::File) {
            // The host does not have the file, and its directory is read-only. Without the file, resolvers use the same
            // nameserver by default.
            Err(HostError::System { source, .. }) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                Ok(())
            }
            created => created.and_then(|()| bind(&file, &mount_point, Access::Read)),
        }
    }
}

/// Returns half of the memory of the host, in bytes.
fn half_of_memory() -> Option<u64> {
    let info = rustix::system::sysinfo();
    Some(info.totalram.saturating_mul(u64::from(info.mem_unit)) / 2)
}

/// Resolves the symlinks of an absolute path as seen from inside `root`, where they must not lead out of it.
/// The last components may be missing.
fn resolve_in(root: &Path, path: &Path) -> PathBuf {
    let (mut resolved, mut links) = (PathBuf::new(), 0);
    let mut rest = path.to_owned();
    loop {
        let mut components = rest.components();
        match components.next() {
            None => return root.join(resolved),
            Some(Component::ParentDir) => drop(resolved.pop()),
            Some(Component::Normal(name)) => match fs::read_link(root.join(&resolved).join(name)) {
                Ok(target) if links < SYMLINKS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        resolved.clear();
                    }
                    rest = target.join(components.as_path());
                    continue;
                }
                _ => resolved.push(name),
            },
            Some(_) => {}
        }
        rest = components.as_path().to_owned();
    }
}

fn open(mount: &Mount) -> Result<Opened> {
    let directory = |path: &std::ffi::OsStr| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).context(format!("open {}", path.display()))
    };
    Ok(match mount {
        Mount::Hide(_) => Opened::Hide,
        Mount::Show(path) => Opened::Show(clone_tree(Path::new(path), Access::Read)?),
        Mount::Overlay { at, upper, work } => {
            Opened::Overlay { lower: directory(at)?, upper: directory(upper)?, work: directory(work)? }
        }
    })
}

/// Returns the writable directories that the host has, each once: some are symlinks to others.
fn tmpfs_dirs() -> Vec<(PathBuf, u32)> {
    let mut dirs: Vec<(PathBuf, u32)> = Vec::new();
    for (path, mode) in TMPFS_DIRS {
        let Ok(path) = fs::canonicalize(path) else { continue };
        let is_below_other = dirs.iter().any(|(other, _)| path.starts_with(other));
        if path.is_dir() && path.parent().is_some() && !is_below_other {
            dirs.push((path, mode));
        }
    }
    dirs
}

/// Type of a mount point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountPoint {
    File,
    Directory,
}

/// Creates a mount point if it does not exist. This is possible below a directory that a tmpfs or an overlay covers;
/// everything else is read-only.
fn create_mount_point(path: &Path, kind: MountPoint) -> Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    if kind == MountPoint::Directory {
        return create_dir(path);
    }
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    fs::write(path, "").context(format!("create {}", path.display()))
}

/// Makes the new root the root of this process, and detaches the old one.
fn pivot() -> Result<()> {
    chdir(NEW_ROOT).context("enter the new root")?;
    pivot_root(".", ".").context("pivot to the new root")?;
    unmount(".", UnmountFlags::DETACH).context("detach the root of the host")?;
    chdir("/").context("enter `/` of the new root")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn symlinks_are_resolved_inside_the_root() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for directory in ["etc", "run/resolver", "var"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        symlink("/run", root.join("var/run")).unwrap();
        symlink("../var/run/resolver/./stub.conf", root.join("etc/resolv.conf")).unwrap();
        symlink("../../../../etc/passwd", root.join("etc/outside")).unwrap();
        symlink("loop", root.join("etc/loop")).unwrap();
        assert_eq!(resolve_in(root, Path::new("/etc/resolv.conf")), root.join("run/resolver/stub.conf"));
        assert_eq!(resolve_in(root, Path::new("/etc/outside")), root.join("etc/passwd"));
        assert_eq!(resolve_in(root, Path::new("/etc/loop")), root.join("etc/loop"));
        assert_eq!(resolve_in(root, Path::new("/etc/plain/file")), root.join("etc/plain/file"));
    }
}
