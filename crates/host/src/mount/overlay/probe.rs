//! Probe whether the filesystem of a directory is good for overlays: mounts one on layers in a temporary directory
//! below it, and reads, writes and deletes files, and recreates a directory. For an id-mapped overlay, it also checks
//! the owners of files.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, XattrFlags, flock, getxattr, mknodat, setxattr};
use rustix::io::Errno;

use super::config::{Overlay, Upper, Xattrs};
use super::{diagnosis, local};
use crate::error::{Context as _, HostError, Result};
use crate::mount::remove_tree::remove_tree;
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::sandbox_ids::shared_sandbox_ids;

/// Name of the temporary directory.
const PROBE_DIR: &str = "overlay-probe";

/// Runs the probe in the namespaces of this process. `layers_parent` is the directory in which the temporary
/// directory is created.
pub(super) fn run(xattrs: Xattrs, layers_parent: &Path, idmap_uid: Option<u32>) -> Result<()> {
    let probe = Probe { xattrs, idmap_uid, path: layers_parent.join(PROBE_DIR) };
    let _lock = probe.begin()?;
    let tried = probe.try_all();
    let cleaned = probe.clean_up();
    tried.map_err(|error| probe.explain(error)).and(cleaned)
}

struct Probe {
    xattrs: Xattrs,
    /// UID to which the layers are id-mapped.
    idmap_uid: Option<u32>,
    /// Temporary directory with the layers and the mount point.
    path: PathBuf,
}

impl Probe {
    /// Creates and locks the directory. Concurrent probes take turns, and leftovers of one that was killed
    /// are removed.
    fn begin(&self) -> Result<fs::File> {
        loop {
            let action = || format!("create {}", self.path.display());
            match fs::create_dir(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error).context(action());
                }
                _ => {}
            }
            let directory = match fs::File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.context(action())?,
            };
            flock(directory.as_fd(), FlockOperation::LockExclusive).context(action())?;
            let locked = directory.metadata().context(action())?.ino();
            // Otherwise the previous probe has removed it.
            if fs::metadata(&self.path).is_ok_and(|found| found.ino() == locked) {
                local::unmount(&self.join("at"))?;
                for name in ["a", "b", "upper", "work", "at"] {
                    remove_tree(&self.join(name))?;
                }
                return Ok(directory);
            }
        }
    }

    fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn clean_up(&self) -> Result<()> {
        local::unmount(&self.join("at"))?;
        remove_tree(&self.path)
    }

    fn try_all(&self) -> Result<()> {
        self.create_layers()?;
        let (lower, upper, work, at) =
            ([self.join("a"), self.join("b")], self.join("upper"), self.join("work"), self.join("at"));
        let overlay = Overlay {
            lower: &lower,
            upper: Some(Upper { directory: &upper, work: &work }),
            mount_point: &at,
            idmap_uid: self.idmap_uid,
        };
        local::mount(self.xattrs, &overlay)?;
        self.read()?;
        self.write()?;
        self.delete()?;
        self.recreate()?;
        self.idmap_uid.map_or(Ok(()), |uid| self.check_id_map(uid))
    }

    /// Checks that a file that belongs to the shared sandbox user on disk belongs to `dedicated_uid` in the mount,
    /// and that a file of `dedicated_uid` in the mount belongs to the shared user on disk.
    fn check_id_map(&self, dedicated_uid: u32) -> Result<()> {
        // The probe runs in the namespaces in which it mounts, so it needs no holder.
        let Some((shared, _)) = shared_sandbox_ids(&NamespaceHolder::None) else {
            return Err(HostError::other("the user namespace does not map the sandbox user"));
        };
        let owner = |name: &str| -> Result<u32> {
            Ok(fs::symlink_metadata(self.join(name)).context("read the owner of an id-mapped file")?.uid())
        };
        let set_owner = |name: &str, user| chown(self.join(name), Some(user), Some(user));
        set_owner("b/given", shared).context("change the owner of a file")?;
        self.expect(owner("at/given")? == dedicated_uid, "id-mapped files of a layer have the wrong owner")?;
        set_owner("at/again", dedicated_uid).context("change the owner of a file through an overlay")?;
        self.expect(owner("upper/again")? == shared, "id-mapped files are written with the wrong owner")?;
        fs::write(self.join("at/given"), "new").context("write through an overlay")?;
        self.expect(owner("upper/given")? == shared, "a copy-up changed the owner of a file")
    }

    /// Creates two layers, `a` over `b`; `a` hides a file and the content of a directory of `b`.
    fn create_layers(&self) -> Result<()> {
        let create = || -> io::Result<()> {
            for name in ["a/hiding", "b/hiding", "b/again", "upper", "work", "at"] {
                fs::create_dir_all(self.join(name))?;
            }
            for name in ["a/both", "b/both", "b/hidden", "b/given", "b/hiding/file", "b/again/file"] {
                fs::write(self.join(name), name)?;
            }
            Ok(())
        };
        create().context(format!("create files in {}", self.path.display()))?;
        mknodat(CWD, self.join("a/hidden"), FileType::CharacterDevice, Mode::empty(), 0)
            .context("create a whiteout (a character device 0:0)")?;
        let opaque = format!("{}opaque", self.xattrs.prefix());
        setxattr(self.join("a/hiding"), opaque.as_str(), b"y", XattrFlags::empty())
            .context(format!("set the attribute {opaque}"))
    }

    fn read(&self) -> Result<()> {
        let both = fs::read_to_string(self.join("at/both")).context("read through an overlay")?;
        self.expect(both == "a/both", "the upper layer does not hide the lower one")?;
        self.expect(absent(&self.join("at/hidden")), "a whiteout does not hide a file")?;
        self.expect(absent(&self.join("at/hiding/file")), "an opaque directory does not hide the lower one")
    }

    fn write(&self) -> Result<()> {
        fs::write(self.join("at/both"), "new").context("write through an overlay")?;
        let upper = fs::read_to_string(self.join("upper/both")).context("read from the upper directory")?;
        self.expect(upper == "new", "a write did not reach the upper directory")
    }

    fn delete(&self) -> Result<()> {
        fs::remove_file(self.join("at/both")).context("delete through an overlay")?;
        let whiteout = fs::symlink_metadata(self.join("upper/both")).context("look for a whiteout")?;
        let is_whiteout = whiteout.file_type().is_char_device() && whiteout.rdev() == 0;
        self.expect(is_whiteout, "a deletion created no whiteout")
    }

    /// Checks a directory that was deleted and created again.
    fn recreate(&self) -> Result<()> {
        let again = self.join("at/again");
        let recreated = fs::remove_dir_all(&again).and_then(|()| fs::create_dir(&again));
        recreated.context("recreate a directory through an overlay")?;
        self.expect(absent(&again.join("file")), "a recreated directory shows files of the deleted one")?;
        let opaque = format!("{}opaque", self.xattrs.prefix());
        let mut value = [0; 2];
        let found = getxattr(self.join("upper/again"), opaque.as_str(), &mut value);
        let found = found.context(format!("read the attribute {opaque}"))?;
        self.expect(&value[..found] == b"y", "a recreated directory is not opaque")
    }

    fn expect(&self, condition: bool, error: &str) -> Result<()> {
        if condition { Ok(()) } else { Err(HostError::other(error.to_owned())) }
    }

    /// Adds the name of the filesystem, if it does not support upper directories.
    fn explain(&self, error: HostError) -> HostError {
        // `diagnosis` has named the filesystem in errors of the mount itself.
        let is_explained = matches!(error, HostError::Overlay { .. });
        let layers_parent = self.path.parent().unwrap_or(&self.path);
        match diagnosis::unsuitable(layers_parent) {
            Some(filesystem) if !is_explained => HostError::other(format!(
                "{error} ({} is on {filesystem}, which does not support the upper directory of an overlay)",
                layers_parent.display()
            )),
            _ => error,
        }
    }
}

fn absent(path: &Path) -> bool {
    let metadata = fs::symlink_metadata(path);
    metadata.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::NOENT))
}
