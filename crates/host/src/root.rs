//! The root filesystem of a sandbox, built from inside its namespaces.
//!
//! The template `base` is made of what the machine has: its programs and libraries, read-only, and an `/etc` of
//! its own with a few harmless parts of the machine's. Nothing of homes, `/run`, `/var` or `/root` is there.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::error::{Doing as _, Result};
use crate::mounts::{Access, bind};

/// Where the new root is put together. Exists everywhere; what it holds on the machine is not seen any more.
const NEW: &str = "/tmp";
/// Directories of programs and libraries.
const PROGRAMS: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];
/// Parts of the machine's `/etc` that programs need and that tell nothing.
const ETC: [&str; 7] = [
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",
    "ssl/openssl.cnf",
];
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
/// Parts of `/proc` and `/sys` that are of the machine, not of the sandbox.
const HIDDEN: [&str; 11] = [
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
const FIXED: [&str; 5] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

/// What the root is to hold.
pub(crate) struct Root<'a> {
    pub(crate) hostname: &'a str,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Empty directories on which others mount something.
    pub(crate) places: &'a [PathBuf],
    /// How much memory the sandbox may use.
    pub(crate) memory: Option<u64>,
}

impl Root<'_> {
    /// Puts the root together and makes it the root of this process.
    pub(crate) fn build(&self) -> Result<()> {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .doing("keep mounts to the sandbox")?;
        temporary(NEW, "mode=0755,size=16m", MountFlags::empty())?;
        self.programs()?;
        self.etc()?;
        self.writable()?;
        self.devices()?;
        kernel()?;
        for place in self.places {
            make(&inside(place))?;
        }
        enter()
    }

    fn programs(&self) -> Result<()> {
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

    fn etc(&self) -> Result<()> {
        make(&inside("etc/ssl"))?;
        let (user, group) = (self.user, self.group);
        let files = [
            (
                "passwd",
                format!(
                    "root:x:0:0:root:/root:/usr/sbin/nologin\n\
                     sandbox:x:{user}:{group}:sandbox:/home/sandbox:/bin/sh\n\
                     nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
                ),
            ),
            ("group", format!("root:x:0:\nsandbox:x:{group}:\nnogroup:x:65534:\n")),
            ("hostname", format!("{}\n", self.hostname)),
            ("hosts", format!("127.0.0.1 localhost {}\n::1 localhost\n", self.hostname)),
            ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
            ("resolv.conf", String::new()),
        ];
        for (name, text) in files {
            let path = inside("etc").join(name);
            fs::write(&path, text).doing(format!("write {}", path.display()))?;
        }
        for name in ETC {
            let (from, to) = (Path::new("/etc").join(name), inside("etc").join(name));
            if from.is_dir() {
                make(&to)?;
            } else if from.is_file() {
                fs::write(&to, "").doing(format!("write {}", to.display()))?;
            } else {
                continue;
            }
            bind(&from, &to, Access::Read)?;
        }
        Ok(())
    }

    /// Options of a filesystem in memory. Full, it must leave room for processes: they would be killed otherwise,
    /// and what fills it would stay.
    fn memory_files(&self, mode: u32) -> String {
        let size = self.memory.map(|memory| format!(",size={}", memory / 2));
        format!("mode={mode:o}{}", size.unwrap_or_default())
    }

    fn writable(&self) -> Result<()> {
        for (name, mode) in [("tmp", 0o1777), ("var/tmp", 0o1777), ("run", 0o755), ("home/sandbox", 0o755)] {
            make(&inside(name))?;
            temporary(inside(name), &self.memory_files(mode), MountFlags::empty())?;
        }
        let home = inside("home/sandbox");
        std::os::unix::fs::chown(&home, Some(self.user), Some(self.group)).doing("give the home to its user")
    }

    fn devices(&self) -> Result<()> {
        let dev = inside("dev");
        make(&dev)?;
        temporary(&dev, "mode=0755,size=64k", MountFlags::NOEXEC)?;
        for name in DEVICES {
            let to = dev.join(name);
            fs::write(&to, "").doing(format!("write {}", to.display()))?;
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
        temporary(dev.join("shm"), &self.memory_files(0o1777), MountFlags::NOEXEC)?;
        make(&dev.join("pts"))?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(c"devpts", dev.join("pts"), c"devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=0620"))
            .doing("mount devpts")?;
        read_only(&dev, MountFlags::NOEXEC)
    }
}

fn inside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(NEW).join(path.strip_prefix("/").unwrap_or(path))
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).doing(format!("make {}", path.display()))
}

fn temporary(path: impl AsRef<Path>, options: &str, more: MountFlags) -> Result<()> {
    let path = path.as_ref();
    let options = std::ffi::CString::new(options).map_err(io::Error::other).doing("read mount options")?;
    mount(c"tmpfs", path, c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV | more, Some(options.as_c_str()))
        .doing(format!("mount a tmpfs at {}", path.display()))
}

/// What is mounted there, but nothing below it, can only be read from now on.
fn read_only(path: &Path, more: MountFlags) -> Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | more;
    mount_remount(path, flags, c"").doing(format!("make {} read-only", path.display()))
}

fn kernel() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    make(&inside("proc"))?;
    mount(c"proc", inside("proc"), c"proc", flags, None).doing("mount proc")?;
    make(&inside("sys"))?;
    mount(c"sysfs", inside("sys"), c"sysfs", flags | MountFlags::RDONLY, None).doing("mount sysfs")?;
    for name in FIXED.iter().map(inside).filter(|path| path.exists()) {
        bind(&name, &name, Access::Read)?;
    }
    for name in HIDDEN.iter().map(inside) {
        if name.is_dir() {
            temporary(&name, "size=0", MountFlags::RDONLY | MountFlags::NOEXEC)?;
        } else if name.exists() {
            bind(Path::new("/dev/null"), &name, Access::Device)?;
        }
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
