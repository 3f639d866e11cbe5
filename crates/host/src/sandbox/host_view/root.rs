//! The root of a view, built from inside its namespaces.

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{chdir, pivot_root};

use super::Mount;
use crate::error::{Doing as _, Result};
use crate::mount::mounts::{Access, attach, bind, detached};
use crate::mount::overlay::config::{Overlay, Xattrs};
use crate::mount::overlay::local;
use crate::mount::root::{NEW, devices, inside, kernel, make, memory_options, read_only, temporary};
use crate::network::egress::RESOLV_CONF;

/// Path of the filesystem in memory while its parts are mounted; `/proc` comes there later.
const MEMORY: &str = "proc";
/// Writable directories in memory, and who may write there.
const PARTS: [(&str, u32); 4] =
    [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755), ("/var/run", 0o755)];
const SHARED_MEMORY: &str = "shm";
/// Covers of hidden files and directories.
const NO_FILE: &str = "no-file";
const NO_DIRECTORY: &str = "no-directory";

/// Root of a view: the machine's files, and these.
pub(super) struct Root<'a> {
    pub(super) mounts: &'a [Mount],
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) memory: Option<u64>,
    pub(super) nameserver: bool,
}

/// Descriptors that were opened before the new root covers a part of the old one.
enum Opened {
    Hide,
    Show(OwnedFd),
    Overlay { lower: OwnedFd, upper: OwnedFd, work: OwnedFd },
}

impl Root<'_> {
    /// Puts the root together and makes it the root of this process.
    pub(super) fn build(&self) -> Result<()> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .doing("keep mounts to the sandbox")?;
        let opened = self.mounts.iter().map(open).collect::<Result<Vec<_>>>()?;
        let parts = parts();
        let view = detached(Path::new("/"), Access::Read)?;
        attach(view.as_fd(), Path::new(NEW))?;
        self.make_memory(&parts)?;
        for (number, (path, _)) in parts.iter().enumerate() {
            bind(&inside(MEMORY).join(number.to_string()), &inside(path), Access::Write)?;
        }
        let mut parents = Vec::new();
        for (index, (mount, opened)) in self.mounts.iter().zip(&opened).enumerate() {
            parents.extend(self.mount(index, mount, opened)?);
        }
        if self.nameserver {
            self.name_server()?;
        }
        devices()?;
        bind(&inside(MEMORY).join(SHARED_MEMORY), &inside("dev/shm"), Access::Data)?;
        for parent in parents {
            read_only(&parent, MountFlags::empty())?;
        }
        unmount(inside(MEMORY), UnmountFlags::DETACH).doing("take away the whole of the writable files")?;
        kernel(self.memory)?;
        enter()
    }

    /// One filesystem in memory, so that one bound holds for all that is written there.
    fn make_memory(&self, parts: &[(PathBuf, u32)]) -> Result<()> {
        // Without a limit: a quarter of the machine's memory.
        let memory = self.memory.or_else(half_of_machine);
        temporary(inside(MEMORY), &memory_options(memory), MountFlags::empty())?;
        let numbered = parts.iter().enumerate().map(|(number, (_, mode))| (number.to_string(), *mode));
        for (name, mode) in numbered.chain([(SHARED_MEMORY.to_owned(), 0o1777), (NO_DIRECTORY.to_owned(), 0)])
        {
            let path = inside(MEMORY).join(&name);
            make(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).doing(format!("open {name}"))?;
        }
        let none = inside(MEMORY).join(NO_FILE);
        fs::write(&none, "").doing("make an empty file")?;
        fs::set_permissions(&none, fs::Permissions::from_mode(0o0)).doing("close an empty file")?;
        if let Some(number) = parts.iter().position(|(path, _)| path == Path::new("/run")) {
            let own = inside(MEMORY).join(number.to_string()).join("user").join(self.user.to_string());
            make(&own)?;
            chown(&own, Some(self.user), Some(self.group)).doing("give the runtime directory to its user")?;
            fs::set_permissions(&own, fs::Permissions::from_mode(0o700))
                .doing("close the runtime directory")?;
        }
        Ok(())
    }

    /// Mounts one; the path of a directory that is only there to lead to others, and is to become read-only.
    fn mount(&self, index: usize, mount: &Mount, opened: &Opened) -> Result<Option<PathBuf>> {
        let path = mount.path();
        let at = inside(&path);
        match opened {
            Opened::Hide => {
                let Ok(found) = fs::symlink_metadata(&at) else { return Ok(None) };
                if found.is_symlink() {
                    return Ok(None);
                }
                let leads_on = self.mounts[index + 1..]
                    .iter()
                    .any(|later| !matches!(later, Mount::Hide(_)) && later.path().starts_with(&path));
                if found.is_dir() && leads_on {
                    temporary(&at, "mode=0755,size=256k", MountFlags::empty())?;
                    return Ok(Some(at));
                }
                let cover = if found.is_dir() { NO_DIRECTORY } else { NO_FILE };
                bind(&inside(MEMORY).join(cover), &at, Access::Read)?;
            }
            Opened::Show(tree) => {
                let is_directory = fs::metadata(format!("/proc/self/fd/{}", tree.as_raw_fd()))
                    .is_ok_and(|found| found.is_dir());
                target(&at, is_directory)?;
                attach(tree.as_fd(), &at)?;
            }
            Opened::Overlay { lower, upper, work } => {
                target(&at, true)?;
                let name = |fd: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                let (lower, upper, work) = ([name(lower)], name(upper), name(work));
                let overlay = Overlay { lower: &lower, upper: &upper, work: &work, at: &at, user: None };
                local::mount_on_top(Xattrs::User, &overlay).map_err(|error| error.at(&path))?;
            }
        }
        Ok(None)
    }

    /// Programs inside ask somebody inside what names mean.
    fn name_server(&self) -> Result<()> {
        let text = inside(MEMORY).join("resolv.conf");
        fs::write(&text, RESOLV_CONF).doing("name the name server")?;
        let mut path = PathBuf::from("/etc/resolv.conf");
        for _ in 0..16 {
            let Ok(target) = fs::read_link(inside(&path)) else { break };
            path = path.parent().unwrap_or(Path::new("/")).join(target);
            path = normal(&path);
        }
        let at = inside(&path);
        if !at.exists() {
            target(&at, false)?;
        }
        bind(&text, &at, Access::Read)
    }
}

fn half_of_machine() -> Option<u64> {
    let info = rustix::system::sysinfo();
    Some(info.totalram.saturating_mul(u64::from(info.mem_unit)) / 2)
}

/// A path without `.` and `..`, by its words.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            std::path::Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

fn open(mount: &Mount) -> Result<Opened> {
    let directory = |path: &std::ffi::OsStr| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).doing(format!("open {}", path.display()))
    };
    Ok(match mount {
        Mount::Hide(_) => Opened::Hide,
        Mount::Show(path) => Opened::Show(detached(Path::new(path), Access::Read)?),
        Mount::Overlay { at, upper, work } => {
            Opened::Overlay { lower: directory(at)?, upper: directory(upper)?, work: directory(work)? }
        }
    })
}

/// The writable directories that the machine has, each once: some are symlinks to others.
fn parts() -> Vec<(PathBuf, u32)> {
    let mut parts: Vec<(PathBuf, u32)> = Vec::new();
    for (path, mode) in PARTS {
        let Ok(path) = fs::canonicalize(path) else { continue };
        let below = parts.iter().any(|(other, _)| path.starts_with(other));
        if path.is_dir() && path.parent().is_some() && !below {
            parts.push((path, mode));
        }
    }
    parts
}

/// Makes something to mount on, where it is missing: below what is hidden or private.
fn target(at: &Path, is_directory: bool) -> Result<()> {
    if fs::symlink_metadata(at).is_ok() {
        return Ok(());
    }
    if is_directory {
        return make(at);
    }
    if let Some(parent) = at.parent() {
        make(parent)?;
    }
    fs::write(at, "").doing(format!("make {}", at.display()))
}

/// Makes the new root the root, and lets go of the old one.
fn enter() -> Result<()> {
    chdir(NEW).doing("enter the root")?;
    pivot_root(".", ".").doing("change the root")?;
    unmount(".", UnmountFlags::DETACH).doing("let go of the machine's root")?;
    chdir("/").doing("enter the root")
}
