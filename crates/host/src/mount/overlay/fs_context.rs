//! Creating an overlay with the mount API (`fsopen(2)`), or with `mount(2)` on older kernels.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::config::{LAYERS_MAX, Overlay, Xattrs};
use super::diagnosis;
use crate::error::{Context as _, Result};

/// Maximum length of the options of `mount(2)`.
const OPTIONS_MAX: usize = 4095;

/// Options of all overlays. Without `metacopy` a copy-up copies the whole file, so that the changes of a
/// workspace can be read from the upper directory alone.
const COMMON_OPTIONS: [(&str, &str); 3] = [("index", "off"), ("metacopy", "off"), ("xino", "off")];

/// Options of the upper and the work directory.
const WRITABLE_OPTIONS: [&str; 2] = ["upperdir", "workdir"];

/// Creates a detached overlay. Returns `None` if the kernel can only create it at its mount point.
pub(super) fn create(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<Option<OwnedFd>> {
    create_from(xattrs, overlay, &|path| open_dir(path, overlay))
}

/// Creates a detached overlay of directories that `open` opens.
pub(super) fn create_from(
    xattrs: Xattrs,
    overlay: &Overlay<'_>,
    open: &dyn Fn(&Path) -> Result<OwnedFd>,
) -> Result<Option<OwnedFd>> {
    if overlay.lower.is_empty() || overlay.lower.len() > LAYERS_MAX {
        return Err(diagnosis::layer_count(overlay));
    }
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)
        .map_err(|errno| diagnosis::unavailable(overlay, errno))?;
    if defers_option_parsing(context.as_fd()) {
        return Ok(None);
    }
    let failed = |errno| diagnosis::rejected(overlay, errno, diagnosis::messages(context.as_fd()));
    // Keeps the descriptors open until the overlay is created.
    let mut open_paths = Vec::new();
    match configure(context.as_fd(), xattrs, overlay, open, &mut open_paths)? {
        Configured::NoLayerOption => return Ok(None),
        Configured::Options(set) => set.and_then(|()| fsconfig_create(&context)).map_err(failed)?,
    }
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if overlay.upper.is_none() {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed).map(Some)
}

/// Returns whether the kernel parses options only when it mounts, as before Linux 6.5.
fn defers_option_parsing(context: BorrowedFd<'_>) -> bool {
    let accepts_unknown_option = fsconfig_set_flag(context, c"workspace-none").is_ok();
    // Discards the kernel's messages about this option.
    diagnosis::messages(context);
    accepts_unknown_option
}

enum Configured {
    /// The kernel does not have the option `lowerdir+`, which adds one layer, as before Linux 6.7.
    NoLayerOption,
    /// All options were tried; the result is that of the first that failed.
    Options(rustix::io::Result<()>),
}

fn configure(
    context: BorrowedFd<'_>,
    xattrs: Xattrs,
    overlay: &Overlay<'_>,
    open: &dyn Fn(&Path) -> Result<OwnedFd>,
    open_paths: &mut Vec<FdPath>,
) -> Result<Configured> {
    for layer in overlay.lower {
        let name = FdPath::of(open(layer)?)?;
        let set = fsconfig_set_string(context, c"lowerdir+", name.text.as_c_str());
        // An id-mapped mount is detached, so it disappears when its descriptor is closed.
        open_paths.extend(overlay.idmap_uid.is_some().then_some(name));
        if let Err(errno) = set {
            return layer_rejected(context, overlay, errno);
        }
    }
    let writable: Vec<FdPath> =
        overlay.writable_dirs().map(|path| FdPath::of(open(path)?)).collect::<Result<_>>()?;
    let set = || -> rustix::io::Result<()> {
        for (key, name) in WRITABLE_OPTIONS.iter().zip(&writable) {
            fsconfig_set_string(context, *key, name.text.as_c_str())?;
        }
        for (key, value) in COMMON_OPTIONS {
            fsconfig_set_string(context, key, value)?;
        }
        // With `userxattr` the kernel creates no redirects: renaming a directory of a lower layer fails with
        // `EXDEV`, and programs copy it.
        match xattrs {
            Xattrs::Trusted => fsconfig_set_string(context, c"redirect_dir", c"on"),
            Xattrs::User => fsconfig_set_flag(context, c"userxattr"),
        }
    };
    let set = set();
    open_paths.extend(writable);
    Ok(Configured::Options(set))
}

/// Distinguishes a rejected layer from a kernel that does not know the option. Both are `EINVAL`; only the
/// kernel's message differs.
fn layer_rejected(context: BorrowedFd<'_>, overlay: &Overlay<'_>, errno: Errno) -> Result<Configured> {
    let messages = diagnosis::messages(context);
    if errno == Errno::INVAL && messages.iter().any(|message| message.contains("Unknown parameter")) {
        return Ok(Configured::NoLayerOption);
    }
    Err(diagnosis::rejected(overlay, errno, messages))
}

/// Path of a directory in mount options.
#[derive(Debug)]
struct FdPath {
    text: CString,
    /// Must stay open until the kernel has resolved the path.
    _directory: OwnedFd,
}

impl FdPath {
    /// Returns the path of the descriptor in `/proc/self/fd`. The kernel shows it in `mountinfo`, and a
    /// sandbox must not learn the paths of the host. Those may also be too long for the options.
    fn of(directory: OwnedFd) -> Result<Self> {
        let text = CString::new(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let text = text.map_err(std::io::Error::from).context("encode the path of a file descriptor")?;
        Ok(Self { text, _directory: directory })
    }
}

fn open_dir(path: &Path, overlay: &Overlay<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|errno| diagnosis::rejected(overlay, errno, Vec::new()))
}

/// Mounts at the mount point with all options in one string, for kernels before 6.7.
pub(super) fn mount_by_options(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    let name = |path: &Path| FdPath::of(open_dir(path, overlay)?);
    let layers: Vec<FdPath> = overlay.lower.iter().map(|layer| name(layer)).collect::<Result<_>>()?;
    let writable: Vec<FdPath> = overlay.writable_dirs().map(name).collect::<Result<_>>()?;
    let layers: Vec<&[u8]> = layers.iter().map(|layer| layer.text.as_bytes()).collect();
    let mut options = b"lowerdir=".to_vec();
    options.extend(layers.join(&b':'));
    for (key, name) in WRITABLE_OPTIONS.iter().zip(&writable) {
        options.extend([b",", key.as_bytes(), b"=", name.text.as_bytes()].concat());
    }
    for (key, value) in COMMON_OPTIONS {
        options.extend(format!(",{key}={value}").into_bytes());
    }
    options.extend(match xattrs {
        Xattrs::Trusted => &b",redirect_dir=on"[..],
        Xattrs::User => b",userxattr",
    });
    if options.len() > OPTIONS_MAX {
        return Err(diagnosis::options_too_long(overlay));
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if overlay.upper.is_none() {
        flags |= MountFlags::RDONLY;
    }
    let options = CString::new(options).map_err(std::io::Error::from).context("encode mount options")?;
    rustix::mount::mount(c"overlay", overlay.mount_point, c"overlay", flags, options.as_c_str()).map_err(
        |errno| match errno {
            Errno::NODEV | Errno::PERM => diagnosis::unavailable(overlay, errno),
            _ => diagnosis::rejected(overlay, errno, Vec::new()),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::config::Upper;
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    #[test]
    fn all_options_fit_into_one_mount_call() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let lower: Vec<PathBuf> = (0..50).map(|number| path(&format!("a:b,c\\{number}"))).collect();
        for (number, layer) in lower.iter().enumerate() {
            fs::create_dir(layer).unwrap();
            fs::write(layer.join(number.to_string()), "").unwrap();
        }
        for name in ["upper", "work", "at"] {
            fs::create_dir(path(name)).unwrap();
        }
        let (upper, work, at) = (path("upper"), path("work"), path("at"));
        let overlay = Overlay {
            lower: &lower,
            upper: Some(Upper { directory: &upper, work: &work }),
            mount_point: &at,
            idmap_uid: None,
        };
        mount_by_options(Xattrs::Trusted, &overlay).unwrap();
        assert_eq!(fs::read_dir(&at).unwrap().count(), 50);
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
        let many = vec![path("work"); 300];
        let error = mount_by_options(Xattrs::Trusted, &Overlay { lower: &many, ..overlay }).unwrap_err();
        assert!(error.to_string().contains("300 layers are too many"), "{error}");
    }
}
