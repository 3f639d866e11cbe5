//! Reads the changes of a workspace from the upper directory of its overlay.
//!
//! The upper directory has only new and changed entries. The *base* is the tree of the snapshot that the workspace was
//! created from. A character device 0:0 (a *whiteout*) marks an entry of the base as removed. An *opaque* directory
//! hides the directory of the base with the same path. A *redirect* is an attribute of a renamed directory: its path in
//! the base. Entries that the upper directory lacks are as in the base. Entries are opened one by one from open
//! directories, never through a symlink, and their type is checked on the open file.
//!
//! A snapshot stores hard links as entries with equal *link labels*: numbers, one per linked file. The *fingerprint* of
//! a file is its mode, size, mtime, ctime and inode. It is *reliable* if any later change of the file changes it.

pub(crate) mod digest;
mod links;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FileType, OFlags, RawDir, Stat, fgetxattr, fstat};
use rustix::io::Errno;
use workspace_host::NamespaceHolder;
use workspace_host::overlay::{self, Xattrs as OverlayXattrs};
use workspace_state::{
    AddOutcome, Attributes, DEPTH_MAX, DirectoryNode, DirectoryReader, Entry, FileToAdd, Node, OwnerIds,
    SkipReason, SkippedCollector, SkippedEntry, StatFingerprint, Store, StoreError, Timestamp, Tree,
    TreeError, VirtualTree, WalkUsage, unescape_xattrs, xattrs_size,
};

use crate::base::Base;
use crate::error::{Context as _, Result, WorkspaceError};
use crate::file_opener::FileOpener;
use crate::fingerprint_index::FingerprintIndex;
use crate::provider::{ReliableFingerprints, UncommittedContent};
use crate::writers::Writers;

use links::{AddedLink, HardLinkNames};

/// Number of files that are read at once. The memory for their attributes is counted after each such batch.
const ADD_BATCH: usize = 256;

/// Parameters for reading an upper directory.
pub(crate) struct Scan<'a> {
    pub(crate) store: &'a Store,
    /// Namespace holder: the process that keeps the namespaces in which the overlay is mounted.
    pub(crate) holder: &'a NamespaceHolder,
    /// Opener of files regardless of their modes.
    pub(crate) opener: &'a FileOpener,
    pub(crate) base: &'a Base,
    /// Path of the upper directory.
    pub(crate) upper: &'a Path,
    /// Unique name of the workspace's directory. It is part of new link labels, so that other workspaces have others.
    pub(crate) unique_name: &'a str,
    /// Fingerprints of the files at the last commit. Files that still have them are not read.
    pub(crate) index: &'a FingerprintIndex,
    pub(crate) writers: Writers,
    /// Range of the UIDs and GIDs that files of a sandbox's root filesystem have on disk. In its tree, an owner other
    /// than user 0 and group 0 is stored as an extended attribute. `None` for the files of a workspace, which all have
    /// one owner.
    pub(crate) owner_ids: Option<OwnerIds>,
}

/// Open directory inside the upper directory, or the upper directory itself.
struct UpperDirectory {
    fd: Rc<OwnedFd>,
    /// Path relative to the upper directory.
    path: Vec<u8>,
    /// Directory of the base that the overlay merges with it; `None` if there is none.
    base: Option<Rc<DirectoryNode>>,
    /// Number of parents up to the upper directory.
    depth: usize,
}

/// Directory that is to be opened and read.
struct QueuedDirectory {
    name: Vec<u8>,
    parent: Rc<OwnedFd>,
    /// Directory of the base that the overlay merges with the parent; `None` if there is none.
    parent_base: Option<Rc<DirectoryNode>>,
    /// Path relative to the upper directory.
    path: Vec<u8>,
    /// Number of parents up to the upper directory.
    depth: usize,
}

/// Overlay attributes that the kernel has set on a directory.
#[derive(Default)]
struct OverlayFlags {
    /// Set if the directory hides the directory of the base with the same path.
    opaque: bool,
    /// Origin of a renamed directory; `None` if it was not renamed. A value that begins with a slash is a path in the
    /// base; another value is a name in the same parent directory.
    redirect: Option<Vec<u8>>,
}

impl Scan<'_> {
    /// Reads the whole upper directory, and returns the content of the workspace.
    pub(crate) fn run(&self) -> Result<UncommittedContent> {
        let tree = self.base.to_virtual_tree()?;
        let last_commit = match self.index.snapshot {
            Some(id) => self.store.find_snapshot(&id)?,
            None => None,
        };
        // A snapshot has the files of a workspace, and may have a root filesystem. `select` selects the one that this
        // scan reads.
        let last_commit = last_commit.and_then(|snapshot| self.base.part.select(snapshot));
        let last_commit = last_commit.map(|snapshot| Tree::of_snapshot(self.store, &snapshot)).transpose()?;
        let root = self.opener.open_root(self.upper).context("open", self.upper)?;
        let base = match self.base.tree.root().node {
            Node::Directory(node) => Some(Rc::new(node)),
            _ => None,
        };
        let walk = Walk {
            scan: self,
            tree,
            last_commit,
            usage: WalkUsage::new(self.store.walk_limits()),
            skipped: SkippedCollector::default(),
            files: Vec::new(),
            linked: HashMap::new(),
            link_names: HashMap::new(),
            queue: Vec::new(),
            directories: Vec::new(),
        };
        walk.run(&UpperDirectory { fd: Rc::new(root), path: Vec::new(), base, depth: 0 })
    }

    /// Fails if the operation is cancelled.
    fn check_cancelled(&self) -> Result<()> {
        Ok(self.store.cancel_flag().check().map_err(StoreError::from)?)
    }

    /// Returns the namespace of the overlay attributes: `user.*` or `trusted.*`.
    fn overlay_xattrs(&self) -> OverlayXattrs {
        overlay::xattrs(self.holder)
    }

    /// Returns the absolute path of an entry, for error messages.
    fn full_path(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        self.upper.join(std::ffi::OsStr::from_bytes(path))
    }

    /// Stats an entry; `None` if it was removed during the scan.
    fn stat(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
        match self.opener.stat(directory, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some),
        }
    }
}

impl DirectoryReader for Scan<'_> {
    fn open(&self, directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        self.opener.open_file(directory, name)
    }

    fn xattrs(&self, file: BorrowedFd<'_>) -> io::Result<workspace_state::Xattrs> {
        let xattrs = self.opener.xattrs(file)?;
        let xattrs = match self.overlay_xattrs() {
            OverlayXattrs::User => unescape_xattrs(xattrs),
            OverlayXattrs::Trusted => xattrs,
        };
        let Some(owner_ids) = self.owner_ids else { return Ok(xattrs) };
        let stat = fstat(file)?;
        Ok(owner_ids.xattrs_in_tree(xattrs, stat.st_uid, stat.st_gid))
    }

    fn is_quiescent(&self) -> bool {
        self.writers == Writers::Stopped
    }
}

/// File that must be read.
struct FileToRead {
    file: FileToAdd,
    /// Fingerprint (size, times and inode) before the file is read.
    fingerprint: StatFingerprint,
    /// Set if the file keeps the link label that it has in the base, because it is unchanged.
    keeps_label: bool,
}

/// State of a scan, which applies the entries of the upper directory to a copy of the base.
struct Walk<'a> {
    scan: &'a Scan<'a>,
    /// Copy of the base, and finally the content of the workspace.
    tree: VirtualTree,
    /// Tree of the last commit of this workspace; `None` before the first commit, or if its snapshot was removed.
    last_commit: Option<Tree>,
    /// Number of entries and memory used so far. Adding to it fails beyond the limits of the store handle.
    usage: WalkUsage,
    /// Entries that a snapshot cannot hold, such as sockets.
    skipped: SkippedCollector,
    /// Files of the tree with reliable fingerprints, for the index of the next commit.
    files: Vec<(Vec<u8>, StatFingerprint)>,
    /// Hard-linked files of which one name is in the tree, by inode. Their other names need not be read.
    linked: HashMap<u64, AddedLink>,
    /// All names of hard-linked files by inode.
    link_names: HashMap<u64, HardLinkNames>,
    /// Directories to be read. An agent may nest directories too deeply for recursion.
    queue: Vec<QueuedDirectory>,
    /// Directories that were read, parents first.
    directories: Vec<(Vec<u8>, Attributes)>,
}

impl Walk<'_> {
    /// Reads all directories, starting with `root`, the upper directory.
    fn run(mut self, root: &UpperDirectory) -> Result<UncommittedContent> {
        self.read_directory(root)?;
        while let Some(next) = self.queue.pop() {
            self.read_queued(next)?;
        }
        // Some names of a file may have kept its link label of the base, while others got a new label. All get the kept
        // label.
        self.unify_labels()?;
        // Done last, and children first: adding entries to a directory changes its modification time.
        for (path, attributes) in self.directories.into_iter().rev() {
            self.scan.check_cancelled()?;
            self.tree.put_directory(path, attributes)?;
        }
        let (skipped, skipped_count) = self.skipped.finish_if_complete()?;
        Ok(UncommittedContent {
            tree: self.tree,
            skipped,
            skipped_count,
            files: ReliableFingerprints(self.files),
        })
    }

    /// Applies the entries of a directory to the tree, and queues its subdirectories.
    fn read_directory(&mut self, directory: &UpperDirectory) -> Result<()> {
        let scan = self.scan;
        let stat = fstat(&directory.fd).context("stat", &scan.full_path(&directory.path))?;
        let xattrs = scan
            .xattrs(directory.fd.as_fd())
            .context("read the attributes of", &scan.full_path(&directory.path))?;
        self.usage.add_metadata(xattrs_size(&xattrs))?;
        let mut files = Vec::new();
        for name in self.list(directory)? {
            self.read_entry(directory, &name, &mut files)?;
        }
        self.read_files(directory, files)?;
        let modified = Some(Timestamp(fingerprint(&stat).mtime));
        let attributes =
            Attributes { mode: stat.st_mode as u16 & 0o7777, modified, xattrs, link_label: None };
        self.directories.push((directory.path.clone(), attributes));
        Ok(())
    }

    /// Returns the names in a directory, sorted. Counts the memory of their paths.
    fn list(&self, directory: &UpperDirectory) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(&directory.fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.context("list", &self.scan.full_path(&directory.path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.scan.check_cancelled()?;
                self.usage.add(directory.path.len() + 1 + name.len())?;
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Applies an entry to the tree. A file that must be read is added to `files` instead, a directory to the queue.
    fn read_entry(
        &mut self,
        directory: &UpperDirectory,
        name: &[u8],
        files: &mut Vec<FileToRead>,
    ) -> Result<()> {
        self.scan.check_cancelled()?;
        let path = join(&directory.path, name);
        let stat = self.scan.stat(directory.fd.as_fd(), name).context("stat", &self.scan.full_path(&path))?;
        let Some(stat) = stat else { return Ok(()) };
        match FileType::from_raw_mode(stat.st_mode) {
            // Whiteout.
            FileType::CharacterDevice if stat.st_rdev == 0 => self.remove(&path),
            FileType::Directory => {
                let (parent, parent_base) = (Rc::clone(&directory.fd), directory.base.clone());
                self.queue.push(QueuedDirectory {
                    name: name.to_vec(),
                    parent,
                    parent_base,
                    path,
                    depth: directory.depth + 1,
                });
                Ok(())
            }
            FileType::RegularFile => {
                let (fingerprint, is_linked) = (fingerprint(&stat), stat.st_nlink > 1);
                let kept_label = self.base_label_if_unchanged(directory, name, fingerprint)?;
                if is_linked {
                    self.record_link_name(&path, fingerprint, kept_label)?;
                }
                if kept_label.is_none() && is_linked && self.add_as_link(&path, fingerprint)? {
                    return Ok(());
                }
                if self.add_if_unchanged(&path, fingerprint)? {
                    return if is_linked { self.record_added_link(&path, fingerprint) } else { Ok(()) };
                }
                let link_label = kept_label.or_else(|| is_linked.then(|| self.new_link_label(stat.st_ino)));
                let file = FileToAdd { name: name.to_vec(), path, link_label };
                files.push(FileToRead { file, fingerprint, keeps_label: kept_label.is_some() });
                Ok(())
            }
            FileType::Symlink => self.add_symlink(directory, name, &path, &stat),
            // A socket, named pipe or device. It hides the entry of the base with the same path.
            kind => {
                self.skip(&path, skip_reason(kind));
                self.remove(&path)
            }
        }
    }

    /// Removes an entry of the tree, if it exists.
    fn remove(&mut self, path: &[u8]) -> Result<()> {
        if self.tree.exists(path)? {
            self.tree.remove(path)?;
        }
        Ok(())
    }

    /// Reports an entry that the snapshot will lack.
    fn skip(&mut self, path: &[u8], reason: SkipReason) {
        use std::os::unix::ffi::OsStrExt as _;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
        self.skipped.push(SkippedEntry { path, reason });
    }

    /// Opens a queued directory, and makes the tree have at its path the directory of the base that the overlay merges
    /// with it. Then applies the entries of the queued directory.
    fn read_queued(&mut self, next: QueuedDirectory) -> Result<()> {
        let (scan, path) = (self.scan, next.path.as_slice());
        if next.depth > DEPTH_MAX {
            return Err(WorkspaceError::TooDeep { path: next.path });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match scan.opener.open(next.parent.as_fd(), &next.name, flags) {
            Ok(fd) => fd,
            // Removed or replaced during the scan.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => return Err(error).context("open", &scan.full_path(path)),
        };
        let overlay_flags =
            self.overlay_flags(&fd).context("read the attributes of", &scan.full_path(path))?;
        let base = self.base_of(&next, &overlay_flags)?;
        // The tree starts as a copy of the base, so an unmoved directory is already at its path.
        let is_in_place =
            overlay_flags.redirect.is_none() && matches!(&base, Some(entry) if is_directory(entry));
        if !is_in_place {
            self.remove(path)?;
            if let Some(entry) = base.as_ref().filter(|entry| is_directory(entry)) {
                // `graft` adds the directory with everything below it. It uses `from`, the former path, only to check
                // that the subtree is not nested too deeply. A redirect without a slash is another name in the same
                // parent directory, which is nested as deeply as `path`.
                let from = match overlay_flags.redirect.as_deref() {
                    Some([b'/', from @ ..]) => from,
                    _ => path,
                };
                self.tree.graft(path, entry, from)?;
            }
        }
        let base = base.and_then(|entry| match entry.node {
            Node::Directory(node) => Some(Rc::new(node)),
            _ => None,
        });
        let QueuedDirectory { parent, path, depth, .. } = next;
        // Closes the parent before descending, unless other queued directories need it.
        drop(parent);
        self.read_directory(&UpperDirectory { fd: Rc::new(fd), path, base, depth })
    }

    /// Returns the entry of the base with which the overlay merges a directory; `None` if there is none.
    fn base_of(&self, next: &QueuedDirectory, overlay_flags: &OverlayFlags) -> Result<Option<Entry>> {
        if overlay_flags.opaque {
            return Ok(None);
        }
        let (tree, parent) = (&self.scan.base.tree, next.parent_base.as_deref());
        match overlay_flags.redirect.as_deref() {
            Some([b'/', path @ ..]) => Ok(tree.entry(path)?),
            Some(name) => Ok(parent.map(|parent| tree.entry_of(parent, name)).transpose()?.flatten()),
            None => Ok(parent.map(|parent| tree.entry_of(parent, &next.name)).transpose()?.flatten()),
        }
    }

    /// Reads the overlay attributes of a directory.
    fn overlay_flags(&self, fd: &OwnedFd) -> io::Result<OverlayFlags> {
        let prefix = self.scan.overlay_xattrs().prefix();
        let name = |suffix: &str| format!("{prefix}{suffix}");
        let is_set = |value: &Vec<u8>| value == b"y";
        Ok(match self.scan.overlay_xattrs() {
            // Only overlays mounted by root write redirects.
            OverlayXattrs::Trusted => OverlayFlags {
                opaque: read_xattr(fd, &name("opaque"))?.as_ref().is_some_and(is_set),
                redirect: read_xattr(fd, &name("redirect"))?,
            },
            OverlayXattrs::User => {
                let xattrs = self.scan.opener.xattrs(fd.as_fd())?;
                OverlayFlags {
                    opaque: xattrs.get(name("opaque").as_bytes()).is_some_and(is_set),
                    redirect: None,
                }
            }
        })
    }

    /// Adds a file from the tree of the last commit if its fingerprint is unchanged. Returns false if the file must be
    /// read.
    fn add_if_unchanged(&mut self, path: &[u8], fingerprint: StatFingerprint) -> Result<bool> {
        let Some(last_commit) = &self.last_commit else { return Ok(false) };
        if self.scan.index.files.get(path) != Some(&fingerprint) {
            return Ok(false);
        }
        let Some(entry) = last_commit.entry(path)?.filter(|entry| matches!(entry.node, Node::File(_))) else {
            return Ok(false);
        };
        match self.tree.graft(path, &entry, path) {
            Ok(()) => {}
            // Garbage collection deleted the objects of the file, so it is read again.
            Err(TreeError::Store(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.files.push((path.to_vec(), fingerprint));
        Ok(true)
    }

    /// Adds a symlink, unless it was removed or replaced during the scan.
    fn add_symlink(
        &mut self,
        directory: &UpperDirectory,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
    ) -> Result<()> {
        let target = match self.scan.opener.read_link(directory.fd.as_fd(), name) {
            Ok(target) => target,
            // Removed or replaced during the scan.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::INVAL)) => {
                return Ok(());
            }
            Err(error) => return Err(error).context("read", &self.scan.full_path(path)),
        };
        self.usage.add_metadata(target.len())?;
        self.remove(path)?;
        Ok(self.tree.put_symlink(path, target, Some(Timestamp(fingerprint(stat).mtime)))?)
    }

    /// Reads files of a directory. Of a hard-linked file, only one name is read, and the other names are added as links
    /// to the file. A name that keeps its link label of the base is always read: a link to another name would give it
    /// the new label of that name.
    fn read_files(&mut self, directory: &UpperDirectory, unread: Vec<FileToRead>) -> Result<()> {
        let mut seen_inodes = HashSet::new();
        let (first_names, other_names): (Vec<_>, Vec<_>) = unread.into_iter().partition(|unread| {
            unread.keeps_label
                || unread.file.link_label.is_none()
                || seen_inodes.insert(unread.fingerprint.inode)
        });
        self.read_in_batches(directory, first_names)?;
        // A file that changed meanwhile has another fingerprint under its other names, which are then read too.
        let mut changed = Vec::new();
        for unread in other_names {
            if !self.add_as_link(&unread.file.path, unread.fingerprint)? {
                changed.push(unread);
            }
        }
        self.read_in_batches(directory, changed)
    }

    /// Reads files and adds them to the tree, [`ADD_BATCH`] at once.
    fn read_in_batches(&mut self, directory: &UpperDirectory, unread: Vec<FileToRead>) -> Result<()> {
        let mut unread = unread.into_iter().map(|unread| unread.file);
        loop {
            let files: Vec<FileToAdd> = unread.by_ref().take(ADD_BATCH).collect();
            if files.is_empty() {
                return Ok(());
            }
            self.read_batch(directory, files)?;
        }
    }

    fn read_batch(&mut self, directory: &UpperDirectory, files: Vec<FileToAdd>) -> Result<()> {
        let added = self.tree.add_files(directory.fd.as_fd(), &files, self.scan)?;
        for (file, added) in files.into_iter().zip(added) {
            match added {
                AddOutcome::File { fingerprint, reliable, metadata } => {
                    self.usage.add_metadata(metadata)?;
                    if file.link_label.is_some() {
                        self.record_added_link(&file.path, fingerprint)?;
                    }
                    if reliable {
                        self.files.push((file.path, fingerprint));
                    }
                }
                // Removed during the scan.
                AddOutcome::Vanished => {}
                AddOutcome::Skipped(reason) => self.skip(&file.path, reason),
            }
        }
        Ok(())
    }
}

fn is_directory(entry: &Entry) -> bool {
    matches!(entry.node, Node::Directory(_))
}

fn skip_reason(kind: FileType) -> SkipReason {
    match kind {
        FileType::Socket => SkipReason::Socket,
        FileType::Fifo => SkipReason::Fifo,
        _ => SkipReason::Device,
    }
}

/// Reads an extended attribute of up to 4096 bytes; `None` if it is not set.
fn read_xattr(fd: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
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

fn fingerprint(stat: &Stat) -> StatFingerprint {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    StatFingerprint {
        mode: stat.st_mode,
        size: stat.st_size as u64,
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        inode: stat.st_ino,
    }
}
