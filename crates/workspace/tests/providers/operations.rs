//! Pseudo-random operations on the files of the current directory: write, rename, link, remove, change modes, and so
//! on. Property tests (`random.rs`) run sequences of them in workspaces.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags, lremovexattr, mknodat,
    renameat_with, setxattr, utimensat,
};

/// Names of entries. They are few, so that several operations affect the same entry. Some are unusual.
const NAMES: [&[u8]; 12] = [
    b"a",
    b"b",
    b"file",
    b"dir",
    b"new\nline",
    b"\xff\xfe",
    b"with space",
    b".wh.a",
    b"x~",
    "\u{6587}".as_bytes(),
    b".wh..wh..opq",
    &[b'n'; 255],
];
/// Modes that are used more often than others.
const MODES: [u32; 10] = [0o644, 0o600, 0o755, 0o700, 0o000, 0o300, 0o444, 0o111, 0o1777, 0o6755];
/// Names of extended attributes. The kernel itself sets those with `overlay` on the files of overlays.
const ATTRIBUTES: [&str; 7] = [
    "user.a",
    "user.overlay.opaque",
    "user.overlay.redirect",
    "user.overlay.metacopy",
    "user.overlay.origin",
    "user.overlay.whiteout",
    "user.overlay.overlay.opaque",
];

/// Generator of one operation. It is deterministic: equal seeds, steps and directories give the same operation.
pub(crate) struct Operations {
    /// State of the pseudo-random number generator.
    state: u64,
    /// Paths of existing files.
    files: Vec<PathBuf>,
    /// Paths of existing directories.
    directories: Vec<PathBuf>,
    /// Paths of all existing entries.
    all: Vec<PathBuf>,
    /// False to use only modes that give the owner all permissions.
    all_modes: bool,
}

impl Operations {
    /// Lists the current directory. `step` is the number of the operation in the sequence that `seed` selects.
    pub(crate) fn new(seed: u64, step: u64, all_modes: bool) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step.wrapping_mul(0xd1b5_4a32_d192_ed03);
        let mut this = Self { state, files: Vec::new(), directories: Vec::new(), all: Vec::new(), all_modes };
        this.walk(Path::new("")).unwrap();
        this
    }

    /// Lists a directory and all directories below it.
    fn walk(&mut self, directory: &Path) -> io::Result<()> {
        let open = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let mut names: Vec<_> = fs::read_dir(open)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        names.sort();
        for name in names {
            let path = directory.join(name);
            let kind = fs::symlink_metadata(&path)?.file_type();
            self.all.push(path.clone());
            if kind.is_file() {
                self.files.push(path);
            } else if kind.is_dir() {
                self.directories.push(path.clone());
                self.walk(&path)?;
            }
        }
        Ok(())
    }

    /// Returns the next pseudo-random number, which is less than `below`.
    fn number(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % below as u64) as usize
    }

    /// Returns one of several paths; `None` if there are none.
    fn one_of(&mut self, paths: impl Fn(&Self) -> &Vec<PathBuf>) -> Option<PathBuf> {
        let count = paths(self).len();
        (count > 0).then(|| {
            let index = self.number(count);
            paths(self)[index].clone()
        })
    }

    fn file(&mut self) -> Option<PathBuf> {
        self.one_of(|this| &this.files)
    }

    fn directory(&mut self) -> Option<PathBuf> {
        self.one_of(|this| &this.directories)
    }

    fn any(&mut self) -> Option<PathBuf> {
        self.one_of(|this| &this.all)
    }

    /// Returns a path in an existing directory. There may be an entry with this path.
    fn path(&mut self) -> PathBuf {
        let parent = if self.number(3) == 0 { None } else { self.directory() };
        let name = NAMES[self.number(NAMES.len())];
        // Limits the length of paths.
        let parent = parent.filter(|parent| parent.as_os_str().len() < 1500).unwrap_or_default();
        parent.join(OsStr::from_bytes(name))
    }

    /// Returns one of [`MODES`] half of the time, else any mode.
    fn mode(&mut self) -> u32 {
        let mode = match self.number(2) {
            0 => MODES[self.number(MODES.len())],
            _ => self.number(0o10000) as u32,
        };
        if self.all_modes { mode } else { mode | 0o700 }
    }

    /// Returns content for a file.
    fn content(&mut self) -> Vec<u8> {
        let length = [0, 1, 100, 5_000, 100_000][self.number(5)];
        let first = self.number(251);
        (0..length).map(|offset| ((offset * 7 + first) % 251) as u8).collect()
    }

    /// Runs the operation. Returns its description, with the error if it failed.
    pub(crate) fn run(&mut self) -> String {
        let (description, result) = self.operation().unwrap_or_else(|| ("nothing to do".to_owned(), Ok(())));
        match result {
            Ok(()) => description,
            Err(error) => format!("{description}: {error}"),
        }
    }

    /// Selects and runs an operation. Returns its description and result; `None` if no existing entry can be used.
    fn operation(&mut self) -> Option<(String, io::Result<()>)> {
        Some(match self.number(27) {
            0..=2 => {
                let (path, content) = (self.path(), self.content());
                (format!("write {path:?}"), write(&path, &content))
            }
            3 => {
                let (path, content) = (self.file()?, self.content());
                (format!("write {path:?} again"), write(&path, &content))
            }
            4 => {
                let (path, content) = (self.file()?, self.content());
                let append = || OpenOptions::new().append(true).open(&path)?.write_all(&content);
                (format!("append to {path:?}"), append())
            }
            5 => {
                let (path, size) = (self.file()?, [0, 10, 70_000][self.number(3)]);
                let truncate = || OpenOptions::new().write(true).open(&path)?.set_len(size);
                (format!("truncate {path:?} to {size}"), truncate())
            }
            6 | 7 => {
                let (from, to) = (self.file()?, self.path());
                (format!("rename the file {from:?} to {to:?}"), fs::rename(&from, &to))
            }
            8 => {
                let (from, to) = (self.file()?, self.file()?);
                (format!("rename the file {from:?} over {to:?}"), fs::rename(&from, &to))
            }
            9 | 10 => {
                let (from, to) = (self.directory()?, self.path());
                (format!("move the directory {from:?} to {to:?}"), move_directory(&from, &to))
            }
            11 => {
                let (from, to) = (self.directory()?, self.directory()?);
                (format!("move the directory {from:?} over {to:?}"), move_directory(&from, &to))
            }
            12 => {
                let (one, other) = (self.any()?, self.any()?);
                let swapped = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
                (format!("exchange {one:?} and {other:?}"), swapped.map_err(io::Error::from))
            }
            13 | 14 => {
                let (from, to) = (self.file()?, self.path());
                (format!("link {from:?} as {to:?}"), fs::hard_link(&from, &to))
            }
            15 => {
                let (path, target) = (self.path(), self.path());
                (format!("symlink {path:?} to {target:?}"), symlink(&target, &path))
            }
            16 => {
                let (path, mode) = (self.any()?, self.mode());
                let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
                let changed =
                    if is_link { Ok(()) } else { fs::set_permissions(&path, Permissions::from_mode(mode)) };
                (format!("chmod {path:?} to {mode:o}"), changed)
            }
            17 => {
                let path = self.file()?;
                (format!("unlink {path:?}"), fs::remove_file(&path))
            }
            18 => {
                let path = self.directory()?;
                let removed =
                    if self.number(2) == 0 { fs::remove_dir(&path) } else { fs::remove_dir_all(&path) };
                (format!("remove the directory {path:?}"), removed)
            }
            19 => {
                let path = self.any()?;
                (format!("replace {path:?} by another kind"), self.replace(&path))
            }
            20 | 21 => {
                let (path, name) = (self.any()?, ATTRIBUTES[self.number(ATTRIBUTES.len())]);
                let value = ["", "y", "x", "/a"][self.number(4)];
                let metadata = fs::symlink_metadata(&path).ok()?;
                let set = if metadata.is_file() || metadata.is_dir() {
                    setxattr(&path, name, value.as_bytes(), XattrFlags::empty()).map_err(io::Error::from)
                } else {
                    Ok(())
                };
                (format!("set {name} of {path:?}"), set)
            }
            22 => {
                let (path, name) = (self.any()?, ATTRIBUTES[self.number(ATTRIBUTES.len())]);
                (format!("unset {name} of {path:?}"), lremovexattr(&path, name).map_err(io::Error::from))
            }
            23 => {
                let path = self.path();
                let made = if self.number(2) == 0 {
                    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).map_err(io::Error::from)
                } else {
                    UnixListener::bind(&path).map(drop)
                };
                (format!("put something special at {path:?}"), made)
            }
            24 => {
                let mode = self.mode();
                let changed = fs::set_permissions(".", Permissions::from_mode(mode));
                (format!("chmod the root to {mode:o}"), changed)
            }
            25 => {
                let path = self.path();
                (format!("make the directory {path:?}"), fs::create_dir(&path))
            }
            _ => {
                let (path, second) = (self.any()?, self.number(2_000_000_000) as i64 - 1_000_000_000);
                let time = Timespec { tv_sec: second, tv_nsec: self.number(1_000_000_000) as _ };
                let times = Timestamps { last_access: time, last_modification: time };
                let set = utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
                (format!("touch {path:?}"), set.map_err(io::Error::from))
            }
        })
    }

    /// Replaces a directory by a file, and any other entry by a symlink or directory.
    fn replace(&mut self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_dir() {
            fs::remove_dir_all(path)?;
            return write(path, &self.content());
        }
        fs::remove_file(path)?;
        if self.number(3) == 0 {
            return symlink("a", path);
        }
        fs::create_dir(path)?;
        File::create(path.join("a")).map(drop)
    }
}

/// Moves a directory as `mv` does: copies it if it cannot be renamed.
fn move_directory(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let moved = std::process::Command::new("mv").args(["-T", "--"]).arg(from).arg(to).output()?;
            if moved.status.success() { Ok(()) } else { Err(io::Error::other("mv failed")) }
        }
        done => done,
    }
}

/// Writes a file. Does not block if the path is that of a named pipe without a reader.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(nonblocking).open(path)?.write_all(content)
}
