//! Root filesystem of a sandbox, built from inside its namespaces.
//!
//! The template `base` consists of the host's programs and libraries, read-only, and an `/etc` with a few
//! harmless parts of the host's. Home directories, `/run`, `/var` and `/root` of the host are not visible.
//!
//! Any other template is a directory under an overlay. Everything that is written or mounted here has a real
//! file or directory in the upper layer, created before the overlay is mounted, so that no symlink of the
//! template redirects it.
//!
//! A kept root is an overlay that outlives the sandbox (`kept_root.rs`).

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::error::{Context as _, Result};
use crate::mount::kept_root;
use crate::mount::mounts::{Access, attach, bind};
use crate::network::egress::RESOLV_CONF;
use crate::resources::sysctl_limits;

/// Maximum number of bytes that are read of a template's file.
const FILE_MAX: u64 = 1 << 20;
/// Directory where the new root is assembled. It exists on every host, and the new root hides its content.
pub(crate) const NEW_ROOT: &str = "/tmp";
/// Directories of the host with programs and libraries.
pub const HOST_PROGRAM_DIRECTORIES: [&str; 8] =
    ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];
/// Parts of the host's `/etc` that programs need and that reveal nothing.
pub const HOST_ETC_ENTRIES: [&str; 7] = [
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",
    "ssl/openssl.cnf",
];
/// Directories that are mount points, or that get files.
const DIRECTORIES: [&str; 8] = ["dev", "etc/ssl", "home/sandbox", "proc", "run", "sys", "tmp", "var/tmp"];
/// Files of `/etc` that belong to the sandbox, not to its template.
const ETC_FILES: [&str; 3] = ["hostname", "hosts", "resolv.conf"];
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
/// Parts of `/proc` and `/sys` that reveal the host.
pub const HIDDEN_KERNEL_PATHS: [&str; 11] = [
    "proc/acpi",
    "proc/asound",
    "proc/interrupts",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/sched_debug",
    "proc/scsi",
    "proc/timer_list",
    "sys/devices/virtual/powercap",
    "sys/firmware",
];
/// Parts of `/proc` that are read-only.
pub const READ_ONLY_KERNEL_PATHS: [&str; 5] =
    ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

/// Path below the new root at which the tmpfs is mounted until its directories are bound to their places. `/proc` is
/// mounted over it later.
const TMPFS_STAGING: &str = "proc";
const PAGE: u64 = 4096;
/// Minimum limit of the number of files in the tmpfs.
const FILES_MIN: u64 = 1024;

/// Directory of the tmpfs that becomes a directory of the sandbox.
struct TmpfsDir {
    /// Name in the tmpfs.
    name: &'static str,
    /// Path in the sandbox, relative to its root.
    path: &'static str,
    mode: u32,
    access: Access,
}

/// Directories of the tmpfs that every root has.
const TMPFS_DIRS: [TmpfsDir; 3] = [
    TmpfsDir { name: "tmp", path: "tmp", mode: 0o1777, access: Access::Write },
    TmpfsDir { name: "run", path: "run", mode: 0o755, access: Access::Write },
    TmpfsDir { name: "shm", path: "dev/shm", mode: 0o1777, access: Access::WriteNoExec },
];
/// Directory of the tmpfs that becomes the home directory of the sandbox user.
const TMPFS_HOME: &str = "home";
/// Further directories of the tmpfs, unless the root is kept: a kept root keeps their content.
const DISCARDED_TMPFS_DIRS: [TmpfsDir; 2] = [
    TmpfsDir { name: "var-tmp", path: "var/tmp", mode: 0o1777, access: Access::Write },
    TmpfsDir { name: TMPFS_HOME, path: "home/sandbox", mode: 0o755, access: Access::Write },
];
/// Directory of the tmpfs with the files that are mounted in `/etc` of a kept root.
const TMPFS_ETC: &str = "etc";

/// Source of a root filesystem.
#[derive(Debug)]
pub(crate) enum RootSource {
    /// Programs and libraries of the host.
    Base,
    /// Detached mount of a template, which stays as it is.
    Template(OwnedFd),
    /// Detached mount of a root that is kept.
    Kept(OwnedFd),
}

/// Root filesystem to build.
pub(crate) struct Root<'a> {
    pub(crate) source: &'a RootSource,
    pub(crate) hostname: &'a str,
    /// UID of the sandbox user, inside.
    pub(crate) user: u32,
    /// GID of the sandbox user, inside.
    pub(crate) group: u32,
    /// Empty directories that serve as mount points.
    pub(crate) mount_points: &'a [PathBuf],
    /// Memory limit of the sandbox, in bytes; limits its tmpfs and its kernel parameters, too.
    pub(crate) memory_limit: Option<u64>,
    /// True if a DNS server listens inside.
    pub(crate) has_nameserver: bool,
}

impl Root<'_> {
    /// Builds the root and makes it the root of this process.
    pub(crate) fn build(&self) -> Result<()> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .context("make the mounts of the sandbox private")?;
        if let RootSource::Kept(root) = self.source {
            attach(root.as_fd(), Path::new(NEW_ROOT))?;
            let names: Vec<&str> =
                self.mount_points.iter().filter_map(|path| path.strip_prefix("/").ok()?.to_str()).collect();
            kept_root::prepare(Path::new(NEW_ROOT), &names)?;
        } else {
            mount_tmpfs(NEW_ROOT, "mode=0755,size=16m", MountFlags::empty())?;
        }
        match self.source {
            RootSource::Base => self.assemble_base()?,
            RootSource::Template(template) => self.mount_template(template.as_fd())?,
            RootSource::Kept(_) => {}
        }
        self.mount_writable_tmpfs()?;
        mount_dev()?;
        self.bind_tmpfs()?;
        mount_kernel_filesystems(self.memory_limit)?;
        for mount_point in self.mount_points {
            create_dir(&in_new_root(mount_point))?;
        }
        self.pivot()
    }

    fn is_kept(&self) -> bool {
        matches!(self.source, RootSource::Kept(_))
    }

    /// Returns the directories of the tmpfs that are bound.
    fn tmpfs_dirs(&self) -> impl Iterator<Item = &'static TmpfsDir> {
        let discarded: &[TmpfsDir] = if self.is_kept() { &[] } else { &DISCARDED_TMPFS_DIRS };
        TMPFS_DIRS.iter().chain(discarded)
    }

    fn assemble_base(&self) -> Result<()> {
        let new = Path::new(NEW_ROOT);
        self.create_skeleton(new)?;
        let (user, group) = (self.user_line(), self.group_line());
        let users = format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\n{user}\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        let groups = format!("root:x:0:\n{group}nogroup:x:65534:\n");
        write(&new.join("etc/passwd"), &users)?;
        write(&new.join("etc/group"), &groups)?;
        write(&new.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?;
        bind_programs()?;
        bind_etc()
    }

    /// Mounts an overlay over the template as the root. Its upper layer is not visible.
    fn mount_template(&self, template: BorrowedFd<'_>) -> Result<()> {
        let [lower, upper, work] = ["lower", "upper", "work"].map(in_new_root);
        for directory in [&lower, &upper, &work] {
            create_dir(directory)?;
        }
        self.create_skeleton(&upper)?;
        self.add_user(template, "etc/passwd", &upper, &self.user_line())?;
        self.add_user(template, "etc/group", &upper, &self.group_line())?;
        attach(template, &lower)?;
        let options =
            format!("lowerdir={NEW_ROOT}/lower,upperdir={NEW_ROOT}/upper,workdir={NEW_ROOT}/work,userxattr");
        let options =
            std::ffi::CString::new(options).map_err(io::Error::other).context("encode mount options")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount(c"overlay", NEW_ROOT, c"overlay", flags, Some(options.as_c_str())).context("mount the template")
    }

    /// Creates the directories and files below `root` that every root has.
    fn create_skeleton(&self, root: &Path) -> Result<()> {
        for directory in DIRECTORIES {
            create_dir(&root.join(directory))?;
        }
        for mount_point in self.mount_points {
            create_dir(&root.join(mount_point.strip_prefix("/").unwrap_or(mount_point)))?;
        }
        self.write_etc(&root.join("etc"))
    }

    /// Writes the files of `/etc` that belong to this sandbox.
    fn write_etc(&self, etc: &Path) -> Result<()> {
        write(&etc.join("hostname"), &format!("{}\n", self.hostname))?;
        write(&etc.join("hosts"), &format!("127.0.0.1 localhost {}\n::1 localhost\n", self.hostname))?;
        write(&etc.join("resolv.conf"), if self.has_nameserver { RESOLV_CONF } else { "" })
    }

    fn user_line(&self) -> String {
        format!("sandbox:x:{}:{}:sandbox:/home/sandbox:/bin/sh\n", self.user, self.group)
    }

    fn group_line(&self) -> String {
        format!("sandbox:x:{}:\n", self.group)
    }

    /// Copies a file of the template to `upper`, with the line of the sandbox user or group added. Does nothing if the
    /// file has an entry with the id of the sandbox user, which is also the id of its group.
    fn add_user(&self, template: BorrowedFd<'_>, file: &str, upper: &Path, line: &str) -> Result<()> {
        let mut text = read_template_file(template, file).context(format!("read {file} of the template"))?;
        let id = self.user.to_string();
        if text.lines().any(|line| line.split(':').nth(2) == Some(&id)) {
            return Ok(());
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        write(&upper.join(file), &(text + line))
    }

    /// Mounts the tmpfs that holds all writable directories except the workspace, so that one limit applies
    /// to all of them. It is detached from here once they are bound.
    fn mount_writable_tmpfs(&self) -> Result<()> {
        mount_tmpfs(in_new_root(TMPFS_STAGING), &tmpfs_options(self.memory_limit), MountFlags::empty())?;
        for dir in self.tmpfs_dirs() {
            let path = in_new_root(TMPFS_STAGING).join(dir.name);
            create_dir(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(dir.mode))
                .context(format!("set the permissions of {}", dir.path))?;
        }
        if self.is_kept() {
            let etc = in_new_root(TMPFS_STAGING).join(TMPFS_ETC);
            create_dir(&etc)?;
            return self.write_etc(&etc);
        }
        let home = in_new_root(TMPFS_STAGING).join(TMPFS_HOME);
        std::os::unix::fs::chown(&home, Some(self.user), Some(self.group))
            .context("change the owner of the home directory")
    }

    /// Binds the directories of the tmpfs, and the files in `/etc` of a kept root, to their places. Then
    /// detaches the tmpfs from its temporary mount point.
    fn bind_tmpfs(&self) -> Result<()> {
        for dir in self.tmpfs_dirs() {
            bind(&in_new_root(TMPFS_STAGING).join(dir.name), &in_new_root(dir.path), dir.access)?;
        }
        if self.is_kept() {
            let paths = ETC_FILES.map(|name| in_new_root(TMPFS_STAGING).join(TMPFS_ETC).join(name));
            let files: Vec<(&str, &Path)> =
                ETC_FILES.into_iter().zip(paths.iter().map(PathBuf::as_path)).collect();
            kept_root::mount_files(Path::new(NEW_ROOT), &files)?;
        }
        unmount(in_new_root(TMPFS_STAGING), UnmountFlags::DETACH).context("detach the tmpfs")
    }

    /// Makes the new root the root of this process, and detaches the old one. A root that is not kept becomes
    /// read-only.
    fn pivot(&self) -> Result<()> {
        if !self.is_kept() {
            fs::set_permissions(NEW_ROOT, fs::Permissions::from_mode(0o755))
                .context("set the permissions of the root")?;
        }
        chdir(NEW_ROOT).context("enter the new root")?;
        pivot_root(".", ".").context("pivot to the new root")?;
        unmount(".", UnmountFlags::DETACH).context("detach the root of the host")?;
        chdir("/").context("enter `/` of the new root")?;
        if self.is_kept() { Ok(()) } else { remount_read_only(Path::new("/"), MountFlags::empty()) }
    }
}

/// Creates `/dev`, with harmless devices and its own terminals.
pub(crate) fn mount_dev() -> Result<()> {
    let dev = in_new_root("dev");
    mount_tmpfs(&dev, "mode=0755,size=64k", MountFlags::NOEXEC)?;
    for name in DEVICES {
        let to = dev.join(name);
        write(&to, "")?;
        bind(&Path::new("/dev").join(name), &to, Access::Device)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name)).context(format!("link /dev/{name}"))?;
    }
    create_dir(&dev.join("shm"))?;
    create_dir(&dev.join("pts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount(c"devpts", dev.join("pts"), c"devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=0620"))
        .context("mount devpts")?;
    remount_read_only(&dev, MountFlags::NOEXEC)
}

/// Returns the mount options of the tmpfs for a memory limit: half of it, and one file per 4 KiB of that. A
/// full tmpfs must leave memory for processes; otherwise they would be killed while the files stay. The
/// kernel needs about 1 KiB per file in addition. Without a limit the kernel's defaults apply.
pub(crate) fn tmpfs_options(memory_limit: Option<u64>) -> String {
    let Some(memory_limit) = memory_limit else { return "mode=0755".to_owned() };
    // The kernel takes 0 for no limit.
    let size = (memory_limit / 2).max(PAGE);
    format!("mode=0755,size={size},nr_inodes={}", (size / PAGE).max(FILES_MIN))
}

/// Binds the host's programs and libraries.
fn bind_programs() -> Result<()> {
    for name in HOST_PROGRAM_DIRECTORIES {
        let (from, to) = (Path::new("/").join(name), in_new_root(name));
        match fs::read_link(&from) {
            Ok(target) => symlink(target, &to).context(format!("link {}", to.display()))?,
            Err(_) if from.is_dir() => {
                create_dir(&to)?;
                bind(&from, &to, Access::Read)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Binds the harmless parts of the host's `/etc`.
fn bind_etc() -> Result<()> {
    for name in HOST_ETC_ENTRIES {
        let (from, to) = (Path::new("/etc").join(name), in_new_root("etc").join(name));
        if from.is_dir() {
            create_dir(&to)?;
        } else if from.is_file() {
            write(&to, "")?;
        } else {
            continue;
        }
        bind(&from, &to, Access::Read)?;
    }
    Ok(())
}

/// Reads a file of the template, resolving symlinks inside the template. Returns an empty string if there is
/// none.
fn read_template_file(template: BorrowedFd<'_>, file: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat2(template, file, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(String::new()),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).context(format!("write {}", path.display()))
}

pub(crate) fn in_new_root(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(NEW_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

pub(crate) fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).context(format!("create {}", path.display()))
}

pub(crate) fn mount_tmpfs(path: impl AsRef<Path>, options: &str, extra_flags: MountFlags) -> Result<()> {
    let path = path.as_ref();
    let options =
        std::ffi::CString::new(options).map_err(io::Error::other).context("encode mount options")?;
    mount(
        c"tmpfs",
        path,
        c"tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV | extra_flags,
        Some(options.as_c_str()),
    )
    .context(format!("mount a tmpfs at {}", path.display()))
}

/// Makes a mount read-only, but not those below it.
pub(crate) fn remount_read_only(path: &Path, extra_flags: MountFlags) -> Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | extra_flags;
    mount_remount(path, flags, c"").context(format!("make {} read-only", path.display()))
}

pub(crate) fn mount_kernel_filesystems(memory_limit: Option<u64>) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", in_new_root("proc"), c"proc", flags, None).context("mount proc")?;
    sysctl_limits::set(&in_new_root("proc/sys"), memory_limit)?;
    mount(c"sysfs", in_new_root("sys"), c"sysfs", flags | MountFlags::RDONLY, None).context("mount sysfs")?;
    for name in READ_ONLY_KERNEL_PATHS.iter().map(in_new_root).filter(|path| path.exists()) {
        bind(&name, &name, Access::Read)?;
    }
    protect_attributes()?;
    for name in HIDDEN_KERNEL_PATHS.iter().map(in_new_root) {
        if name.is_dir() {
            mount_tmpfs(&name, "size=0", MountFlags::RDONLY | MountFlags::NOEXEC)?;
        } else if name.exists() {
            bind(Path::new("/dev/null"), &name, Access::Device)?;
        }
    }
    Ok(())
}

/// Protects mode and owner of the entries of `/proc` other than processes, because all mounts of `/proc` on
/// the host share them. They belong to root of the host, so a sandbox can change them only if its user
/// namespace maps that user. Otherwise this does nothing.
fn protect_attributes() -> Result<()> {
    let proc = in_new_root("proc");
    let overflow = fs::read_to_string(proc.join("sys/kernel/overflowuid"))
        .context("read proc/sys/kernel/overflowuid")?;
    let owner = fs::metadata(proc.join("version")).context("read the owner of proc/version")?.uid();
    if overflow.trim().parse() == Ok(owner) {
        return Ok(());
    }
    for entry in fs::read_dir(&proc).context("list proc")? {
        let entry = entry.context("list proc")?;
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let is_read_only =
            READ_ONLY_KERNEL_PATHS.iter().any(|path| Path::new(path) == Path::new("proc").join(&name));
        // A process may have exited.
        if is_process || is_read_only || entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            continue;
        }
        bind(&entry.path(), &entry.path(), Access::Read)?;
    }
    Ok(())
}
