//! Changes, read from what the kernel writes into the upper directory of an overlay.
//!
//! What is there is new or changed; a character device 0:0 (a *whiteout*) stands for what is gone; an *opaque* directory
//! hides the one below it, and a *redirect* says that a directory was another one's before. All else is as in the base.
//! Names are opened one by one from open directories, never through a symlink, and what a thing is, is asked of the
//! open thing.

mod links;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FileType, OFlags, RawDir, Stat, fgetxattr, fstat};
use rustix::io::Errno;
use workspace_host::Holder;
use workspace_host::overlay::{self, Xattrs as Notes};
use workspace_state::{
    Attributes, DEPTH_MAX, DirectoryNode, Entry, FileAt, Looks, Node, Reading, SkipReason, Skipped,
    SkippedEntries, Store, StoreError, Taken, Timestamp, Tree, TreeError, VirtualTree, WalkUsage,
    unescape_attributes, xattrs_size,
};

use crate::access::Access;
use crate::base::Base;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::index::Index;

use links::{Linked, Names};

/// Files of one directory that are read before what is held of them is counted.
const TAKEN_AT_ONCE: usize = 256;

/// The state of a workspace that was read from its upper directory.
pub(crate) struct Upper {
    pub(crate) tree: VirtualTree,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) skipped_count: u64,
    /// Files whose looks tell a later change.
    pub(crate) files: Vec<(Vec<u8>, Looks)>,
}

/// What is needed to read an upper directory.
pub(crate) struct Scan<'a> {
    pub(crate) store: &'a Store,
    pub(crate) holder: &'a Holder,
    pub(crate) access: &'a Access,
    pub(crate) base: &'a Base,
    pub(crate) upper: &'a Path,
    /// Tells hard links of this directory from those of any other.
    pub(crate) name: &'a str,
    pub(crate) index: &'a Index,
    pub(crate) still: bool,
}

/// A directory of the upper one, and the directory of the base that it lies over.
struct Below {
    fd: Rc<OwnedFd>,
    path: Vec<u8>,
    base: Option<Rc<DirectoryNode>>,
    depth: usize,
}

/// A directory that is still to be read: a name in another one.
struct Waiting {
    name: Vec<u8>,
    within: Rc<OwnedFd>,
    /// What the directory around it lies over.
    base: Option<Rc<DirectoryNode>>,
    path: Vec<u8>,
    depth: usize,
}

/// What the kernel noted about a directory.
#[derive(Default)]
struct Notice {
    opaque: bool,
    redirect: Option<Vec<u8>>,
}

impl Scan<'_> {
    /// Reads all of it.
    pub(crate) fn run(&self) -> Result<Upper> {
        let tree = match self.base.id() {
            Some(id) => self.store.restore(&id)?,
            None => self.store.empty_tree()?,
        };
        let known = match self.index.snapshot {
            Some(id) => self.store.find_snapshot(&id)?,
            None => None,
        };
        let known = known.map(|snapshot| Tree::of_snapshot(self.store, &snapshot)).transpose()?;
        let root = self.access.open_root(self.upper).on("open", self.upper)?;
        let base = match self.base.tree.root().node {
            Node::Directory(node) => Some(Rc::new(node)),
            _ => None,
        };
        let walk = Walk {
            scan: self,
            tree,
            known,
            usage: WalkUsage::new(self.store.walk_limits()),
            skipped: SkippedEntries::default(),
            files: Vec::new(),
            linked: HashMap::new(),
            names: HashMap::new(),
            waiting: Vec::new(),
            directories: Vec::new(),
        };
        walk.run(&Below { fd: Rc::new(root), path: Vec::new(), base, depth: 0 })
    }

    /// Fails once the work is cancelled.
    fn must_go_on(&self) -> Result<()> {
        Ok(self.store.cancel().check().map_err(StoreError::from)?)
    }

    fn notes(&self) -> Notes {
        overlay::xattrs(self.holder)
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        self.upper.join(std::ffi::OsStr::from_bytes(path))
    }

    fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
        match self.access.stat(directory, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }
}

impl Reading for Scan<'_> {
    fn open(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        self.access.open_file(directory, name)
    }

    fn attributes(&self, file: BorrowedFd<'_>) -> io::Result<workspace_state::Xattrs> {
        let xattrs = self.access.attributes(file)?;
        Ok(match self.notes() {
            Notes::User => unescape_attributes(xattrs),
            Notes::Trusted => xattrs,
        })
    }

    fn is_still(&self) -> bool {
        self.still
    }
}

/// A file that is to be read.
struct Unread {
    file: FileAt,
    looks: Looks,
    /// Whether its label is that of the base.
    kept: bool,
}

struct Walk<'a> {
    scan: &'a Scan<'a>,
    tree: VirtualTree,
    /// What was committed of this workspace before.
    known: Option<Tree>,
    usage: WalkUsage,
    skipped: SkippedEntries,
    files: Vec<(Vec<u8>, Looks)>,
    /// By inode. The other names of these need not be read, nor looked up.
    linked: HashMap<u64, Linked>,
    /// By inode: all names of files that have several.
    names: HashMap<u64, Names>,
    /// Directories are read one after another, not one within another: an agent's may be deeper than a stack.
    waiting: Vec<Waiting>,
    /// Those that were read, the outer ones first.
    directories: Vec<(Vec<u8>, Attributes)>,
}

impl Walk<'_> {
    fn run(mut self, root: &Below) -> Result<Upper> {
        self.directory(root)?;
        while let Some(next) = self.waiting.pop() {
            self.below(next)?;
        }
        self.settle_names()?;
        // The inner ones first, when all is there: what is put into a directory changes its time.
        for (path, attributes) in self.directories.into_iter().rev() {
            self.scan.must_go_on()?;
            self.tree.put_directory(path, attributes)?;
        }
        let (skipped, skipped_count) = self.skipped.finish_complete()?;
        Ok(Upper { tree: self.tree, skipped, skipped_count, files: self.files })
    }

    fn directory(&mut self, at: &Below) -> Result<()> {
        let scan = self.scan;
        let stat = fstat(&at.fd).on("look at", &scan.shown(&at.path))?;
        let xattrs = scan.attributes(at.fd.as_fd()).on("read the attributes of", &scan.shown(&at.path))?;
        self.usage.add_metadata(xattrs_size(&xattrs))?;
        let mut files = Vec::new();
        for name in self.list(at)? {
            self.entry(at, &name, &mut files)?;
        }
        self.take_all(at, files)?;
        let modified = Some(Timestamp(looks(&stat).mtime));
        let attributes = Attributes { mode: stat.st_mode as u16 & 0o7777, modified, xattrs, link: None };
        self.directories.push((at.path.clone(), attributes));
        Ok(())
    }

    /// The names in a directory, sorted. Each is counted with the path that is going to be held of it.
    fn list(&self, at: &Below) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&at.fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.on("list", &self.scan.shown(&at.path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.scan.must_go_on()?;
                self.usage.add(at.path.len() + 1 + name.len())?;
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn entry(&mut self, at: &Below, name: &[u8], files: &mut Vec<Unread>) -> Result<()> {
        self.scan.must_go_on()?;
        let path = join(&at.path, name);
        let found = self.scan.stat(at.fd.as_fd(), name).on("look at", &self.scan.shown(&path))?;
        let Some(stat) = found else { return Ok(()) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if stat.st_rdev == 0 => self.remove(&path),
            FileType::Directory => {
                let (within, base) = (Rc::clone(&at.fd), at.base.clone());
                self.waiting.push(Waiting { name: name.to_vec(), within, base, path, depth: at.depth + 1 });
                Ok(())
            }
            FileType::RegularFile => {
                let (looks, is_linked) = (looks(&stat), stat.st_nlink > 1);
                let kept = self.kept_label(at, name, looks)?;
                if is_linked {
                    self.name(&path, looks, kept)?;
                }
                if kept.is_none() && is_linked && self.is_taken(&path, looks)? {
                    return Ok(());
                }
                if self.is_known(&path, looks)? {
                    return if is_linked { self.link(&path, looks) } else { Ok(()) };
                }
                let link = kept.or_else(|| is_linked.then(|| self.label(stat.st_ino)));
                let file = FileAt { name: name.to_vec(), path, link };
                files.push(Unread { file, looks, kept: kept.is_some() });
                Ok(())
            }
            FileType::Symlink => self.symlink(at, name, &path, &stat),
            kind => {
                self.skip(&path, unwanted(kind));
                self.remove(&path)
            }
        }
    }

    /// Takes away what the base has there.
    fn remove(&mut self, path: &[u8]) -> Result<()> {
        if self.tree.exists(path)? {
            self.tree.remove(path)?;
        }
        Ok(())
    }

    fn skip(&mut self, path: &[u8], reason: SkipReason) {
        use std::os::unix::ffi::OsStrExt as _;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        self.skipped.push(Skipped { path, reason });
    }

    fn below(&mut self, next: Waiting) -> Result<()> {
        let (scan, path) = (self.scan, next.path.as_slice());
        if next.depth > DEPTH_MAX {
            return Err(WorkspaceError::TooDeep { path: next.path });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match scan.access.open(next.within.as_fd(), &next.name, flags) {
            Ok(fd) => fd,
            // Gone, or another thing by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).on("open", &scan.shown(path)),
        };
        let notice = self.notice(&fd).on("read the attributes of", &scan.shown(path))?;
        let base = self.base_of(&next, &notice)?;
        let is_same = notice.redirect.is_none() && matches!(&base, Some(entry) if is_directory(entry));
        if !is_same {
            self.remove(path)?;
            if let Some(entry) = base.as_ref().filter(|entry| is_directory(entry)) {
                self.tree.graft(path, entry)?;
            }
        }
        let base = base.and_then(|entry| match entry.node {
            Node::Directory(node) => Some(Rc::new(node)),
            _ => None,
        });
        let Waiting { within, path, depth, .. } = next;
        // Let go before it goes deeper, unless it has other directories.
        drop(within);
        self.directory(&Below { fd: Rc::new(fd), path, base, depth })
    }

    /// What a directory lies over.
    fn base_of(&self, next: &Waiting, notice: &Notice) -> Result<Option<Entry>> {
        if notice.opaque {
            return Ok(None);
        }
        let (tree, base) = (&self.scan.base.tree, next.base.as_deref());
        match notice.redirect.as_deref() {
            Some([b'/', path @ ..]) => Ok(tree.entry(path)?),
            Some(other) => Ok(base.map(|base| tree.entry_of(base, other)).transpose()?.flatten()),
            None => Ok(base.map(|base| tree.entry_of(base, &next.name)).transpose()?.flatten()),
        }
    }

    fn notice(&self, fd: &OwnedFd) -> io::Result<Notice> {
        let prefix = self.scan.notes().prefix();
        let name = |note: &str| format!("{prefix}{note}");
        let is_yes = |value: &Vec<u8>| value == b"y";
        Ok(match self.scan.notes() {
            // Only the kernel's own mounts of the superuser write redirects.
            Notes::Trusted => Notice {
                opaque: attribute(fd, &name("opaque"))?.as_ref().is_some_and(is_yes),
                redirect: attribute(fd, &name("redirect"))?,
            },
            Notes::User => {
                let xattrs = self.scan.access.attributes(fd.as_fd())?;
                Notice { opaque: xattrs.get(name("opaque").as_bytes()).is_some_and(is_yes), redirect: None }
            }
        })
    }

    /// Whether a file is the one that was committed before: then that is taken.
    fn is_known(&mut self, path: &[u8], looks: Looks) -> Result<bool> {
        let Some(known) = &self.known else { return Ok(false) };
        if self.scan.index.files.get(path) != Some(&looks) {
            return Ok(false);
        }
        let Some(entry) = known.entry(path)?.filter(|entry| matches!(entry.node, Node::File(_))) else {
            return Ok(false);
        };
        match self.tree.graft(path, &entry) {
            Ok(()) => {}
            // Given up meanwhile: it is read again.
            Err(TreeError::Store(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.files.push((path.to_vec(), looks));
        Ok(true)
    }

    fn symlink(&mut self, at: &Below, name: &[u8], path: &[u8], stat: &Stat) -> Result<()> {
        let target = match self.scan.access.read_link(at.fd.as_fd(), name) {
            Ok(target) => target,
            // Gone, or another thing by now.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::INVAL)) => {
                return Ok(());
            }
            Err(error) => return Err(error).on("read", &self.scan.shown(path)),
        };
        self.usage.add_metadata(target.len())?;
        self.remove(path)?;
        Ok(self.tree.put_symlink(path, target, Some(Timestamp(looks(stat).mtime)))?)
    }

    /// Reads the files of a directory that are not known, those with several names once.
    fn take_all(&mut self, at: &Below, unread: Vec<Unread>) -> Result<()> {
        let mut seen = HashSet::new();
        let (first, others): (Vec<_>, Vec<_>) = unread
            .into_iter()
            .partition(|unread| unread.kept || unread.file.link.is_none() || seen.insert(unread.looks.inode));
        self.take(at, first)?;
        let mut left = Vec::new();
        for unread in others {
            if !self.is_taken(&unread.file.path, unread.looks)? {
                left.push(unread);
            }
        }
        self.take(at, left)
    }

    fn take(&mut self, at: &Below, unread: Vec<Unread>) -> Result<()> {
        let mut unread = unread.into_iter().map(|unread| unread.file);
        loop {
            let files: Vec<FileAt> = unread.by_ref().take(TAKEN_AT_ONCE).collect();
            if files.is_empty() {
                return Ok(());
            }
            self.take_some(at, files)?;
        }
    }

    fn take_some(&mut self, at: &Below, files: Vec<FileAt>) -> Result<()> {
        let taken = self.tree.take_files(at.fd.as_fd(), &files, self.scan)?;
        for (file, taken) in files.into_iter().zip(taken) {
            match taken {
                Taken::File { looks, settled, metadata } => {
                    self.usage.add_metadata(metadata)?;
                    if file.link.is_some() {
                        self.link(&file.path, looks)?;
                    }
                    if settled {
                        self.files.push((file.path, looks));
                    }
                }
                Taken::Vanished => {}
                Taken::Skipped(reason) => self.skip(&file.path, reason),
            }
        }
        Ok(())
    }
}

fn is_directory(entry: &Entry) -> bool {
    matches!(entry.node, Node::Directory(_))
}

fn unwanted(kind: FileType) -> SkipReason {
    match kind {
        FileType::Socket => SkipReason::Socket,
        FileType::Fifo => SkipReason::Fifo,
        _ => SkipReason::Device,
    }
}

fn attribute(fd: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; 4096];
    match fgetxattr(fd, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

fn looks(stat: &Stat) -> Looks {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    Looks {
        mode: stat.st_mode,
        size: stat.st_size as u64,
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        inode: stat.st_ino,
    }
}
