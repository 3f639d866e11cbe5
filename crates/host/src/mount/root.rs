//! The root filesystem of a sandbox, built from inside its namespaces.
//!
//! The template `base` is made of what the machine has: its programs and libraries, read-only, and an `/etc` of
//! its own with a few harmless parts of the machine's. Nothing of homes, `/run`, `/var` or `/root` is there.
//!
//! Any other template is a directory, which is seen through an overlay. Everything that is written or mounted here
//! has a real file or directory in the upper layer, made before the overlay is: no symlink of the template's decides
//! where that goes.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::error::{Doing as _, Result};
use crate::mount::mounts::{Access, attach, bind};
use crate::network::egress::RESOLV_CONF;
use crate::resources::sysctl_limits;

/// How much is read of a template's files.
const LONGEST: u64 = 1 << 20;
/// Where the new root is put together. Exists everywhere; what it holds on the machine is not seen any more.
pub(crate) const NEW: &str = "/tmp";
/// Directories of programs and libraries.
pub const PROGRAMS: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];
/// Parts of the machine's `/etc` that programs need and that tell nothing.
pub const ETC: [&str; 7] = [
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",
    "ssl/openssl.cnf",
];
/// Directories on which something is mounted or made.
const DIRECTORIES: [&str; 8] = ["dev", "etc/ssl", "home/sandbox", "proc", "run", "sys", "tmp", "var/tmp"];
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
/// Parts of `/proc` and `/sys` that are of the machine, not of the sandbox.
pub const HIDDEN: [&str; 11] = [
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
/// Parts of `/proc` that can be read but not written.
pub const FIXED: [&str; 5] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

/// Where the filesystem in memory is while its parts are mounted; `/proc` comes there later.
const MEMORY: &str = "proc";
const PAGE: u64 = 4096;
/// So many files there may be in memory at least.
const FILES_LEAST: u64 = 1024;

/// A part of the filesystem in memory.
struct Part {
    name: &'static str,
    path: &'static str,
    mode: u32,
    access: Access,
}

const PARTS: [Part; 5] = [
    Part { name: "tmp", path: "tmp", mode: 0o1777, access: Access::Write },
    Part { name: "var-tmp", path: "var/tmp", mode: 0o1777, access: Access::Write },
    Part { name: "run", path: "run", mode: 0o755, access: Access::Write },
    Part { name: "home", path: "home/sandbox", mode: 0o755, access: Access::Write },
    Part { name: "shm", path: "dev/shm", mode: 0o1777, access: Access::Data },
];

/// What the root is to hold.
pub(crate) struct Root<'a> {
    /// The directory it is made from, not mounted anywhere yet; none for `base`.
    pub(crate) template: Option<BorrowedFd<'a>>,
    pub(crate) hostname: &'a str,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Empty directories on which others mount something.
    pub(crate) places: &'a [PathBuf],
    /// How much memory the sandbox may use.
    pub(crate) memory: Option<u64>,
    /// Whether somebody inside answers what names mean.
    pub(crate) nameserver: bool,
}

impl Root<'_> {
    /// Puts the root together and makes it the root of this process.
    pub(crate) fn build(&self) -> Result<()> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .doing("keep mounts to the sandbox")?;
        temporary(NEW, "mode=0755,size=16m", MountFlags::empty())?;
        match self.template {
            None => self.base()?,
            Some(template) => self.over(template)?,
        }
        self.memory()?;
        devices()?;
        writable()?;
        kernel(self.memory)?;
        for place in self.places {
            make(&inside(place))?;
        }
        enter()
    }

    fn base(&self) -> Result<()> {
        let new = Path::new(NEW);
        self.skeleton(new)?;
        let (user, group) = (self.user_line(), self.group_line());
        let users = format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\n{user}\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        let groups = format!("root:x:0:\n{group}nogroup:x:65534:\n");
        write(&new.join("etc/passwd"), &users)?;
        write(&new.join("etc/group"), &groups)?;
        write(&new.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?;
        programs()?;
        machine_etc()
    }

    /// Makes the root an overlay over the template. Its upper layer is out of sight.
    fn over(&self, template: BorrowedFd<'_>) -> Result<()> {
        let [lower, upper, work] = ["lower", "upper", "work"].map(inside);
        for directory in [&lower, &upper, &work] {
            make(directory)?;
        }
        self.skeleton(&upper)?;
        self.add_user(template, "etc/passwd", &upper, &self.user_line())?;
        self.add_user(template, "etc/group", &upper, &self.group_line())?;
        attach(template, &lower)?;
        let options = format!("lowerdir={NEW}/lower,upperdir={NEW}/upper,workdir={NEW}/work,userxattr");
        let options =
            std::ffi::CString::new(options).map_err(io::Error::other).doing("read mount options")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount(c"overlay", NEW, c"overlay", flags, Some(options.as_c_str())).doing("mount the template")
    }

    /// Makes what every root has, below `at`.
    fn skeleton(&self, at: &Path) -> Result<()> {
        for directory in DIRECTORIES {
            make(&at.join(directory))?;
        }
        for place in self.places {
            make(&at.join(place.strip_prefix("/").unwrap_or(place)))?;
        }
        write(&at.join("etc/hostname"), &format!("{}\n", self.hostname))?;
        write(&at.join("etc/hosts"), &format!("127.0.0.1 localhost {}\n::1 localhost\n", self.hostname))?;
        write(&at.join("etc/resolv.conf"), if self.nameserver { RESOLV_CONF } else { "" })
    }

    fn user_line(&self) -> String {
        format!("sandbox:x:{}:{}:sandbox:/home/sandbox:/bin/sh\n", self.user, self.group)
    }

    fn group_line(&self) -> String {
        format!("sandbox:x:{}:\n", self.group)
    }

    /// Adds the sandbox's user to a file of the template's, if its id is not there.
    fn add_user(&self, template: BorrowedFd<'_>, file: &str, upper: &Path, line: &str) -> Result<()> {
        let mut text = read_in(template, file).doing(format!("read {file} of the template"))?;
        let id = self.user.to_string();
        if text.lines().any(|line| line.split(':').nth(2) == Some(&id)) {
            return Ok(());
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        write(&upper.join(file), &(text + line))
    }

    /// Mounts the filesystem in memory that all writable directories beside the workspace are parts of, so that one bound
    /// holds for all of them. It is taken away from here when they are mounted, and stays where they are.
    fn memory(&self) -> Result<()> {
        temporary(inside(MEMORY), &memory_options(self.memory), MountFlags::empty())?;
        for part in PARTS {
            let path = inside(MEMORY).join(part.name);
            make(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(part.mode))
                .doing(format!("open {}", part.path))?;
        }
        let home = inside(MEMORY).join("home");
        std::os::unix::fs::chown(&home, Some(self.user), Some(self.group)).doing("give the home to its user")
    }
}

/// Makes `/dev`, with harmless devices and terminals of its own.
pub(crate) fn devices() -> Result<()> {
    let dev = inside("dev");
    temporary(&dev, "mode=0755,size=64k", MountFlags::NOEXEC)?;
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
        symlink(target, dev.join(name)).doing(format!("link /dev/{name}"))?;
    }
    make(&dev.join("shm"))?;
    make(&dev.join("pts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount(c"devpts", dev.join("pts"), c"devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=0620"))
        .doing("mount devpts")?;
    read_only(&dev, MountFlags::NOEXEC)
}

/// Options of the filesystem in memory, for a sandbox that may use so much memory: half of it, and a file for every 4 KiB
/// of that. Full, it must leave room for processes: they would be killed otherwise, and what fills it would stay. The
/// kernel's own notes of a file, about 1 KiB, are beside its size. Without a limit the kernel's defaults hold.
pub(crate) fn memory_options(memory: Option<u64>) -> String {
    let Some(memory) = memory else { return "mode=0755".to_owned() };
    // Nothing means no bound to the kernel.
    let size = (memory / 2).max(PAGE);
    format!("mode=0755,size={size},nr_inodes={}", (size / PAGE).max(FILES_LEAST))
}

/// Mounts the parts of the filesystem in memory.
fn writable() -> Result<()> {
    for part in PARTS {
        bind(&inside(MEMORY).join(part.name), &inside(part.path), part.access)?;
    }
    unmount(inside(MEMORY), UnmountFlags::DETACH).doing("take away the whole of the writable files")
}

/// Makes the machine's programs and libraries visible.
fn programs() -> Result<()> {
    for name in PROGRAMS {
        let (from, to) = (Path::new("/").join(name), inside(name));
        match fs::read_link(&from) {
            Ok(target) => symlink(target, &to).doing(format!("link {}", to.display()))?,
            Err(_) if from.is_dir() => {
                make(&to)?;
                bind(&from, &to, Access::Read)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Makes the harmless parts of the machine's `/etc` visible.
fn machine_etc() -> Result<()> {
    for name in ETC {
        let (from, to) = (Path::new("/etc").join(name), inside("etc").join(name));
        if from.is_dir() {
            make(&to)?;
        } else if from.is_file() {
            write(&to, "")?;
        } else {
            continue;
        }
        bind(&from, &to, Access::Read)?;
    }
    Ok(())
}

/// A text of the template's, wherever its symlinks lead inside it; empty if there is none.
fn read_in(template: BorrowedFd<'_>, file: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat2(template, file, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(String::new()),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(format!("write {}", path.display()))
}

pub(crate) fn inside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(NEW).join(path.strip_prefix("/").unwrap_or(path))
}

pub(crate) fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).doing(format!("make {}", path.display()))
}

pub(crate) fn temporary(path: impl AsRef<Path>, options: &str, more: MountFlags) -> Result<()> {
    let path = path.as_ref();
    let options = std::ffi::CString::new(options).map_err(io::Error::other).doing("read mount options")?;
    mount(c"tmpfs", path, c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV | more, Some(options.as_c_str()))
        .doing(format!("mount a tmpfs at {}", path.display()))
}

/// What is mounted there, but nothing below it, can only be read from now on.
pub(crate) fn read_only(path: &Path, more: MountFlags) -> Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | more;
    mount_remount(path, flags, c"").doing(format!("make {} read-only", path.display()))
}

pub(crate) fn kernel(memory: Option<u64>) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", inside("proc"), c"proc", flags, None).doing("mount proc")?;
    sysctl_limits::set(&inside("proc/sys"), memory)?;
    mount(c"sysfs", inside("sys"), c"sysfs", flags | MountFlags::RDONLY, None).doing("mount sysfs")?;
    for name in FIXED.iter().map(inside).filter(|path| path.exists()) {
        bind(&name, &name, Access::Read)?;
    }
    fix_attributes()?;
    for name in HIDDEN.iter().map(inside) {
        if name.is_dir() {
            temporary(&name, "size=0", MountFlags::RDONLY | MountFlags::NOEXEC)?;
        } else if name.exists() {
            bind(Path::new("/dev/null"), &name, Access::Device)?;
        }
    }
    Ok(())
}

/// Keeps mode and owner of what is in `/proc` beside processes: one entry is the same in every `/proc` of the machine. They are
/// its superuser's, so that nobody can change them where that user does not exist, and nothing needs to be done there.
fn fix_attributes() -> Result<()> {
    let proc = inside("proc");
    let overflow =
        fs::read_to_string(proc.join("sys/kernel/overflowuid")).doing("read proc/sys/kernel/overflowuid")?;
    let owner = fs::metadata(proc.join("version")).doing("look at proc/version")?.uid();
    if overflow.trim().parse() == Ok(owner) {
        return Ok(());
    }
    for entry in fs::read_dir(&proc).doing("list proc")? {
        let entry = entry.doing("list proc")?;
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let is_fixed = FIXED.iter().any(|fixed| Path::new(fixed) == Path::new("proc").join(&name));
        // A process that ended since has no type any more.
        if is_process || is_fixed || entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            continue;
        }
        bind(&entry.path(), &entry.path(), Access::Read)?;
    }
    Ok(())
}

/// Makes the new root the root, and lets go of the old one.
fn enter() -> Result<()> {
    fs::set_permissions(NEW, fs::Permissions::from_mode(0o755)).doing("open the root")?;
    chdir(NEW).doing("enter the root")?;
    pivot_root(".", ".").doing("change the root")?;
    unmount(".", UnmountFlags::DETACH).doing("let go of the machine's root")?;
    chdir("/").doing("enter the root")?;
    read_only(Path::new("/"), MountFlags::empty())
}
