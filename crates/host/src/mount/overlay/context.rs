//! Making an overlay that is mounted nowhere yet, and saying to the kernel of which directories.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use super::config::{LAYERS, Overlay, Xattrs};
use super::diagnosis;
use crate::error::{Doing as _, Result};

/// Longer options `mount(2)` cuts off.
const OPTIONS: usize = 4095;

/// What all overlays are mounted with. What a copy-up leaves behind is then the whole file, and a directory that was
/// renamed says where it came from or is a copy.
const COMMON: [(&str, &str); 3] = [("index", "off"), ("metacopy", "off"), ("xino", "off")];

/// An overlay that is mounted nowhere; none where the kernel makes them only at their place.
pub(super) fn make(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<Option<OwnedFd>> {
    make_of(xattrs, overlay, &|path| by_path(path, overlay))
}

/// The same of directories as `open` opens them.
pub(super) fn make_of(
    xattrs: Xattrs,
    overlay: &Overlay<'_>,
    open: &dyn Fn(&Path) -> Result<OwnedFd>,
) -> Result<Option<OwnedFd>> {
    if overlay.lower.is_empty() || overlay.lower.len() > LAYERS {
        return Err(diagnosis::layers(overlay));
    }
    let context =
        fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| diagnosis::begin(overlay, errno))?;
    if takes_anything(context.as_fd()) {
        return Ok(None);
    }
    let failed = |errno| diagnosis::refused(overlay, errno, diagnosis::messages(context.as_fd()));
    let mut names = Vec::new();
    match configure(context.as_fd(), xattrs, overlay, open, &mut names)? {
        Configured::WithoutLayers => return Ok(None),
        Configured::Done(done) => done.and_then(|()| fsconfig_create(&context)).map_err(failed)?,
    }
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed).map(Some)
}

/// Whether the kernel only collects options, to understand them when it mounts; until 6.4.
fn takes_anything(context: BorrowedFd<'_>) -> bool {
    let taken = fsconfig_set_flag(context, c"workspace-none").is_ok();
    // What it says about that helps nobody.
    diagnosis::messages(context);
    taken
}

enum Configured {
    /// The kernel knows no layers one by one; until 6.6.
    WithoutLayers,
    /// What the kernel says.
    Done(rustix::io::Result<()>),
}

fn configure(
    context: BorrowedFd<'_>,
    xattrs: Xattrs,
    overlay: &Overlay<'_>,
    open: &dyn Fn(&Path) -> Result<OwnedFd>,
    names: &mut Vec<Name>,
) -> Result<Configured> {
    for layer in overlay.lower {
        let name = Name::of(open(layer)?)?;
        let set = fsconfig_set_string(context, c"lowerdir+", name.text.as_c_str());
        // What is shown to a user is mounted nowhere, and goes with its descriptor.
        names.extend(overlay.user.is_some().then_some(name));
        if let Err(errno) = set {
            return layer_refused(context, overlay, errno);
        }
    }
    let (upper, work) = (Name::of(open(overlay.upper)?)?, Name::of(open(overlay.work)?)?);
    let set = || -> rustix::io::Result<()> {
        fsconfig_set_string(context, c"upperdir", upper.text.as_c_str())?;
        fsconfig_set_string(context, c"workdir", work.text.as_c_str())?;
        for (key, value) in COMMON {
            fsconfig_set_string(context, key, value)?;
        }
        match xattrs {
            Xattrs::Trusted => fsconfig_set_string(context, c"redirect_dir", c"on"),
            Xattrs::User => fsconfig_set_flag(context, c"userxattr"),
        }
    };
    let set = set();
    names.extend([upper, work]);
    Ok(Configured::Done(set))
}

/// Tells a layer that is refused from a kernel that does not know the option.
fn layer_refused(context: BorrowedFd<'_>, overlay: &Overlay<'_>, errno: Errno) -> Result<Configured> {
    let said = diagnosis::messages(context);
    if errno == Errno::INVAL && said.iter().any(|message| message.contains("Unknown parameter")) {
        return Ok(Configured::WithoutLayers);
    }
    Err(diagnosis::refused(overlay, errno, said))
}

/// What a directory is called to the kernel.
#[derive(Debug)]
struct Name {
    text: CString,
    /// Must stay open until the kernel has looked.
    _directory: OwnedFd,
}

impl Name {
    /// Names it by a descriptor. The kernel shows the name to everybody who sees the mount, in `mountinfo`, and
    /// a sandbox is not to learn where on the machine its files are. Paths may also be longer than the kernel takes.
    fn of(directory: OwnedFd) -> Result<Self> {
        let text = CString::new(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let text = text.map_err(std::io::Error::from).doing("name a descriptor")?;
        Ok(Self { text, _directory: directory })
    }
}

fn by_path(path: &Path, overlay: &Overlay<'_>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|errno| diagnosis::refused(overlay, errno, Vec::new()))
}

/// Mounts at its place, in the way of kernels before 6.7: all options in one text.
pub(super) fn mount_by_options(xattrs: Xattrs, overlay: &Overlay<'_>) -> Result<()> {
    let name = |path: &Path| Name::of(by_path(path, overlay)?);
    let layers: Vec<Name> = overlay.lower.iter().map(|layer| name(layer)).collect::<Result<_>>()?;
    let (upper, work) = (name(overlay.upper)?, name(overlay.work)?);
    let layers: Vec<&[u8]> = layers.iter().map(|layer| layer.text.as_bytes()).collect();
    let mut options = b"lowerdir=".to_vec();
    options.extend(layers.join(&b':'));
    for (key, name) in [("upperdir", &upper), ("workdir", &work)] {
        options.extend([b",", key.as_bytes(), b"=", name.text.as_bytes()].concat());
    }
    for (key, value) in COMMON {
        options.extend(format!(",{key}={value}").into_bytes());
    }
    options.extend(match xattrs {
        Xattrs::Trusted => &b",redirect_dir=on"[..],
        Xattrs::User => b",userxattr",
    });
    if options.len() > OPTIONS {
        return Err(diagnosis::options(overlay));
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = CString::new(options).map_err(std::io::Error::from).doing("say what to mount")?;
    rustix::mount::mount(c"overlay", overlay.at, c"overlay", flags, options.as_c_str()).map_err(|errno| {
        match errno {
            Errno::NODEV | Errno::PERM => diagnosis::begin(overlay, errno),
            _ => diagnosis::refused(overlay, errno, Vec::new()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    #[test]
    fn a_kernel_that_wants_all_options_at_once_gets_them() {
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
        let overlay = Overlay { lower: &lower, upper: &upper, work: &work, at: &at, user: None };
        mount_by_options(Xattrs::Trusted, &overlay).unwrap();
        assert_eq!(fs::read_dir(&at).unwrap().count(), 50);
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
        let many = vec![path("work"); 300];
        let error = mount_by_options(Xattrs::Trusted, &Overlay { lower: &many, ..overlay }).unwrap_err();
        assert!(error.to_string().contains("300 layers are too many"), "{error}");
    }
}
