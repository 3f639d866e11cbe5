//! Unpacking layers into a directory that they cannot leave.
//!
//! Every path is resolved by the kernel as if the directory were the root: links lead nowhere else, whatever an
//! archive holds. Owners are not kept, nor are set-user-id bits; devices are left out.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use super::TemplateError;

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";
/// More than this is no template.
const FILES_MAX: u64 = 4_000_000;
const BYTES_MAX: u64 = 256 << 30;

pub(super) struct Unpacker {
    root: OwnedFd,
    pub(super) size: u64,
    pub(super) left_out: u64,
    files: u64,
}

impl Unpacker {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, size: 0, left_out: 0, files: 0 })
    }

    /// Puts a layer over what is there.
    pub(super) fn layer(&mut self, layer: impl io::Read) -> Result<(), TemplateError> {
        let mut archive = Archive::new(layer);
        // What this layer made, so that its own opaque marks leave it.
        let mut own = std::collections::HashSet::new();
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let path = inside(&entry.path().map_err(broken)?)?;
            self.files += 1;
            if self.files > FILES_MAX {
                return Err(TemplateError::Archive(format!("it has more than {FILES_MAX} files")));
            }
            let Some(name) = path.file_name().map(PathBuf::from) else { continue };
            let parent_path = path.parent().unwrap_or(Path::new(""));
            let parent = self.directory(parent_path)?;
            match name.to_str() {
                Some(OPAQUE) => {
                    empty(&parent, |child| own.contains(&parent_path.join(child)))?;
                    continue;
                }
                Some(text) if text.starts_with(WHITEOUT) => {
                    remove(&parent, Path::new(&text[WHITEOUT.len()..]))?;
                    continue;
                }
                _ => {}
            }
            self.entry(&mut entry, &parent, &name)?;
            own.extend(path.ancestors().map(Path::to_path_buf));
        }
        Ok(())
    }

    fn entry(
        &mut self,
        entry: &mut Entry<'_, impl io::Read>,
        parent: &OwnedFd,
        name: &Path,
    ) -> Result<(), TemplateError> {
        let mode = Mode::from_raw_mode(entry.header().mode().unwrap_or(0o644) & 0o777);
        match entry.header().entry_type() {
            EntryType::Directory => make_directory(parent, name, mode)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                remove(parent, name)?;
                let flags =
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let mut file = File::from(rustix::fs::openat(parent, name, flags, mode | Mode::WUSR)?);
                self.size += io::copy(entry, &mut file)?;
                // Whatever the mask of this process says.
                rustix::fs::fchmod(&file, mode)?;
                if self.size > BYTES_MAX {
                    return Err(TemplateError::Archive(format!("it has more than {BYTES_MAX} bytes")));
                }
            }
            EntryType::Symlink => {
                let target = entry.link_name().map_err(broken)?;
                let target =
                    target.ok_or_else(|| TemplateError::Archive("a link without a target".to_owned()))?;
                remove(parent, name)?;
                rustix::fs::symlinkat(target.as_ref(), parent, name)?;
            }
            EntryType::Link => self.link(entry, parent, name)?,
            EntryType::XGlobalHeader | EntryType::XHeader => {}
            // A device or a pipe; sandboxes have their own.
            _ => self.left_out += 1,
        }
        Ok(())
    }

    fn link(
        &self,
        entry: &Entry<'_, impl io::Read>,
        parent: &OwnedFd,
        name: &Path,
    ) -> Result<(), TemplateError> {
        let target = entry.link_name().map_err(broken)?;
        let target = target.ok_or_else(|| TemplateError::Archive("a link without a target".to_owned()))?;
        let target = inside(&target)?;
        let nowhere =
            || TemplateError::Archive(format!("a link to `{}`, which is not there", target.display()));
        let (from, of) = target.parent().zip(target.file_name()).ok_or_else(nowhere)?;
        let from = self.directory(from)?;
        remove(parent, name)?;
        rustix::fs::linkat(&from, of, parent, name, AtFlags::empty()).map_err(|_| nowhere())
    }

    /// The directory of that path, made where it is missing.
    fn directory(&self, path: &Path) -> Result<OwnedFd, TemplateError> {
        let mut at = self.open(Path::new("."))?;
        let mut so_far = PathBuf::new();
        for component in path.components() {
            so_far.push(component);
            at = match self.open(&so_far) {
                Err(Errno::NOENT) => {
                    // Not there, or a link that leads nowhere.
                    let name = Path::new(component.as_os_str());
                    remove(&at, name)?;
                    make_directory(&at, name, Mode::from_raw_mode(0o755))?;
                    self.open(&so_far)?
                }
                opened => opened?,
            };
        }
        Ok(at)
    }

    fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
fn broken(error: io::Error) -> TemplateError {
    TemplateError::Archive(error.to_string())
}

/// The path as one below the root.
fn inside(path: &Path) -> Result<PathBuf, TemplateError> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(TemplateError::Archive(format!("`{}` leads out of it", path.display())));
            }
        }
    }
    Ok(plain)
}

fn make_directory(parent: &OwnedFd, name: &Path, mode: Mode) -> Result<(), TemplateError> {
    // Its owner must be able to fill it.
    let mode = mode | Mode::RWXU;
    match kind(parent, name)? {
        Some(FileType::Directory) => {}
        // A link to a directory stays one: what the layer puts there goes where it leads.
        Some(FileType::Symlink) => return Ok(()),
        Some(_) => {
            remove(parent, name)?;
            rustix::fs::mkdirat(parent, name, mode)?;
        }
        None => rustix::fs::mkdirat(parent, name, mode)?,
    }
    Ok(rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?)
}

fn kind(parent: &OwnedFd, name: &Path) -> io::Result<Option<FileType>> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes what has that name, with all in it. Nothing may have it.
fn remove(parent: &OwnedFd, name: &Path) -> io::Result<()> {
    match kind(parent, name)? {
        None => Ok(()),
        Some(FileType::Directory) => {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            empty(&directory, |_| false)?;
            Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
        }
        Some(_) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
    }
}

/// Removes all that is in a directory but what is to stay.
fn empty(directory: &OwnedFd, stays: impl Fn(&Path) -> bool) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let path = Path::new(std::ffi::OsStr::from_bytes(name));
        if name != b"." && name != b".." && !stays(path) {
            remove(directory, path)?;
        }
    }
    Ok(())
}
