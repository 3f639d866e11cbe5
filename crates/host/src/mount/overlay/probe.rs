//! Whether overlays work over what is in a directory, found out by trying.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, XattrFlags, flock, getxattr, mknodat, setxattr};
use rustix::io::Errno;

use super::config::{Overlay, Xattrs};
use super::{diagnosis, local};
use crate::error::{Doing as _, HostError, Result};
use crate::mount::remove_tree::remove_tree;
use crate::namespace::holder::Holder;
use crate::namespace::sandbox_ids::owner;

/// The directory that is made for it.
const NAME: &str = "overlay-probe";

/// Tries it in the namespaces of this process.
pub(super) fn run(xattrs: Xattrs, directory: &Path, user: Option<u32>) -> Result<()> {
    let trial = Trial { xattrs, user, path: directory.join(NAME) };
    let _lock = trial.begin()?;
    let tried = trial.all();
    let cleaned = trial.clean_up();
    tried.map_err(|error| trial.explain(error)).and(cleaned)
}

struct Trial {
    xattrs: Xattrs,
    /// To whom the layers are shown.
    user: Option<u32>,
    path: PathBuf,
}

impl Trial {
    /// Makes the directory. Of several that try at once each has it for itself, and what one left that was killed is
    /// cleared away.
    fn begin(&self) -> Result<fs::File> {
        loop {
            let action = || format!("make {}", self.path.display());
            match fs::create_dir(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error).doing(action());
                }
                _ => {}
            }
            let directory = match fs::File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.doing(action())?,
            };
            flock(directory.as_fd(), FlockOperation::LockExclusive).doing(action())?;
            let locked = directory.metadata().doing(action())?.ino();
            // Else whoever had it before has removed it.
            if fs::metadata(&self.path).is_ok_and(|found| found.ino() == locked) {
                local::unmount(&self.at("at"))?;
                for name in ["a", "b", "upper", "work", "at"] {
                    remove_tree(&self.at(name))?;
                }
                return Ok(directory);
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn clean_up(&self) -> Result<()> {
        local::unmount(&self.at("at"))?;
        remove_tree(&self.path)
    }

    fn all(&self) -> Result<()> {
        self.make_layers()?;
        let (lower, upper, work, at) =
            ([self.at("a"), self.at("b")], self.at("upper"), self.at("work"), self.at("at"));
        let overlay = Overlay { lower: &lower, upper: &upper, work: &work, at: &at, user: self.user };
        local::mount(self.xattrs, &overlay)?;
        self.read()?;
        self.write()?;
        self.delete()?;
        self.make_anew()?;
        self.user.map_or(Ok(()), |user| self.show(user))
    }

    /// A file that belongs to the user of all sandboxes is this user's in the mount, and what he gets there is theirs.
    fn show(&self, user: u32) -> Result<()> {
        let Some((shared, _)) = owner(&Holder::Machine) else {
            return Err(HostError::other("there is no user to show"));
        };
        let owner = |name: &str| -> Result<u32> {
            Ok(fs::symlink_metadata(self.at(name)).doing("look at a file that is shown")?.uid())
        };
        let given = |name: &str, user| chown(self.at(name), Some(user), Some(user));
        given("b/given", shared).doing("give a file away")?;
        self.expect(owner("at/given")? == user, "files of a layer are not shown as another user's")?;
        given("at/again", user).doing("give a file away through an overlay")?;
        self.expect(
            owner("upper/again")? == shared,
            "files of another user's are not stored as those of all",
        )?;
        fs::write(self.at("at/given"), "new").doing("write through an overlay")?;
        self.expect(owner("upper/given")? == shared, "copied files do not belong to whom they belonged")
    }

    /// Two layers, of which the upper one hides a file and what is in a directory of the other.
    fn make_layers(&self) -> Result<()> {
        let made = || -> io::Result<()> {
            for name in ["a/hiding", "b/hiding", "b/again", "upper", "work", "at"] {
                fs::create_dir_all(self.at(name))?;
            }
            for name in ["a/both", "b/both", "b/hidden", "b/given", "b/hiding/file", "b/again/file"] {
                fs::write(self.at(name), name)?;
            }
            Ok(())
        };
        made().doing(format!("make files in {}", self.path.display()))?;
        mknodat(CWD, self.at("a/hidden"), FileType::CharacterDevice, Mode::empty(), 0)
            .doing("make a whiteout (a character device 0:0)")?;
        let opaque = format!("{}opaque", self.xattrs.prefix());
        setxattr(self.at("a/hiding"), opaque.as_str(), b"y", XattrFlags::empty())
            .doing(format!("set the attribute {opaque}"))
    }

    fn read(&self) -> Result<()> {
        let both = fs::read_to_string(self.at("at/both")).doing("read through an overlay")?;
        self.expect(both == "a/both", "the upper one of two layers does not hide the other")?;
        self.expect(absent(&self.at("at/hidden")), "a whiteout hides nothing")?;
        self.expect(absent(&self.at("at/hiding/file")), "an opaque directory hides nothing")
    }

    fn write(&self) -> Result<()> {
        fs::write(self.at("at/both"), "new").doing("write through an overlay")?;
        let upper = fs::read_to_string(self.at("upper/both")).doing("read what was written")?;
        self.expect(upper == "new", "what is written does not come to the upper")
    }

    fn delete(&self) -> Result<()> {
        fs::remove_file(self.at("at/both")).doing("delete through an overlay")?;
        let whiteout = fs::symlink_metadata(self.at("upper/both")).doing("look for a whiteout")?;
        let is_whiteout = whiteout.file_type().is_char_device() && whiteout.rdev() == 0;
        self.expect(is_whiteout, "what is deleted leaves no whiteout")
    }

    /// A directory that was deleted and made again.
    fn make_anew(&self) -> Result<()> {
        let again = self.at("at/again");
        let made = fs::remove_dir_all(&again).and_then(|()| fs::create_dir(&again));
        made.doing("replace a directory through an overlay")?;
        self.expect(absent(&again.join("file")), "a new directory shows what was in the old one")?;
        let opaque = format!("{}opaque", self.xattrs.prefix());
        let mut value = [0; 2];
        let found = getxattr(self.at("upper/again"), opaque.as_str(), &mut value);
        let found = found.doing(format!("read the attribute {opaque}"))?;
        self.expect(&value[..found] == b"y", "a new directory is not opaque")
    }

    fn expect(&self, so: bool, otherwise: &str) -> Result<()> {
        if so { Ok(()) } else { Err(HostError::other(otherwise.to_owned())) }
    }

    /// Says which filesystem it is, if that is why.
    fn explain(&self, error: HostError) -> HostError {
        let told = matches!(error, HostError::Overlay { .. });
        match diagnosis::unsuitable(self.path.parent().unwrap_or(&self.path)) {
            Some(filesystem) if !told => HostError::other(format!(
                "{error} (it is on {filesystem}, which cannot be written to through an overlay)"
            )),
            _ => error,
        }
    }
}

fn absent(path: &Path) -> bool {
    let looked = fs::symlink_metadata(path);
    looked.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::NOENT))
}
