//! Makes a snapshot from an archive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::member::{Kind, Member};
use super::reader::Reader;
use super::sparse::Expanded;
use super::{ArchiveError, Result, refused};
use crate::node::{NodeKind, is_valid_name, is_valid_target};
use crate::progress::Progress;
use crate::snapshot::{NewSnapshot, Snapshot};
use crate::store::Store;
use crate::virtual_tree::{Attributes, TreeError, VirtualTree};

/// Set-uid and set-gid.
const SET_ID: u16 = 0o6000;
/// A file up to this size is held in memory while it gets another name.
const IN_MEMORY: u64 = 16 << 20;

/// How an archive is taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions {
    /// Keep set-uid and set-gid bits, which are dropped otherwise.
    pub keep_set_id: bool,
}

/// What was made of an archive.
#[derive(Debug, Clone)]
pub struct ImportReport {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Regular files, each name of a file counted.
    pub files: u64,
    /// Directories in it, the root not counted.
    pub directories: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// Bytes of the files, those of each name counted.
    pub bytes: u64,
    /// Members that a snapshot cannot hold.
    pub skipped: Vec<SkippedMember>,
    /// Paths that were in the archive more than once; the last one counts.
    pub replaced: Vec<Vec<u8>>,
}

/// A member that is not in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedMember {
    /// Its path in the archive.
    pub path: Vec<u8>,
    /// What it is.
    pub reason: &'static str,
}

/// Reads a tar archive and makes a snapshot of what it holds. All or nothing: an archive that is damaged, or that tries to
/// reach outside itself, leaves nothing behind.
pub fn import_tar(
    store: &Store,
    input: &mut dyn Read,
    new: NewSnapshot,
    options: &ImportOptions,
    progress: &dyn Progress,
) -> Result<ImportReport> {
    let mut importer = Importer::new(store, *options)?;
    let mut reader = Reader::new(input);
    progress.begin("importing entries", None);
    while let Some(member) = reader.next()? {
        importer.take(&member, &mut reader)?;
        progress.advance(1);
    }
    progress.end();
    importer.commit(new)
}

struct Importer {
    tree: VirtualTree,
    options: ImportOptions,
    /// Put at the end: whatever is put into a directory changes its time.
    directories: BTreeMap<Vec<u8>, Attributes>,
    /// All directories but the root; an archive need not name those that its members are in.
    below_root: BTreeSet<Vec<u8>>,
    next_link: u64,
    counts: Counts,
    skipped: Vec<SkippedMember>,
    replaced: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Counts {
    files: u64,
    symlinks: u64,
    bytes: u64,
}

impl Importer {
    fn new(store: &Store, options: ImportOptions) -> Result<Self> {
        Ok(Self {
            tree: store.empty_tree()?,
            options,
            directories: BTreeMap::new(),
            below_root: BTreeSet::new(),
            next_link: 1,
            counts: Counts::default(),
            skipped: Vec::new(),
            replaced: Vec::new(),
        })
    }

    fn take(&mut self, member: &Member, reader: &mut Reader<'_>) -> Result<()> {
        let path = inside(&member.path)?;
        if let Kind::Other(reason) = member.kind {
            self.skipped.push(SkippedMember { path, reason });
            return Ok(());
        }
        self.count_directories(parent(&path));
        if member.kind == Kind::Directory {
            self.tree.mkdir(&path)?;
            self.count_directories(&path);
            self.directories.insert(path, self.attributes(member));
            return Ok(());
        }
        if path.is_empty() {
            return Err(refused(&member.path, "only a directory can be the root"));
        }
        match member.kind {
            Kind::HardLink => return self.hard_link(&path, member),
            Kind::Symlink => {
                self.check_replaced(&path)?;
                self.symlink(&path, member)?;
            }
            _ => {
                self.check_replaced(&path)?;
                self.file(&path, member, reader)?;
            }
        }
        Ok(())
    }

    /// Notes a directory and all above it.
    fn count_directories(&mut self, mut path: &[u8]) {
        while !path.is_empty() && !self.below_root.contains(path) {
            self.below_root.insert(path.to_vec());
            path = parent(path);
        }
    }

    fn attributes(&self, member: &Member) -> Attributes {
        let mode = if self.options.keep_set_id { member.mode } else { member.mode & !SET_ID };
        Attributes { mode, modified: member.modified, xattrs: member.xattrs.clone(), link: None }
    }

    /// As tools do: a later member takes the place of an earlier one, unless that is a directory.
    fn check_replaced(&mut self, path: &[u8]) -> Result<()> {
        match self.tree.stat(path) {
            Err(TreeError::NotFound { .. }) => Ok(()),
            Err(other) => Err(other.into()),
            Ok(stat) if stat.kind == NodeKind::Directory => {
                Err(refused(path, "it would take the place of a directory"))
            }
            Ok(stat) => {
                if stat.kind == NodeKind::Symlink {
                    self.counts.symlinks -= 1;
                } else {
                    self.counts.files -= 1;
                    self.counts.bytes -= stat.size;
                }
                self.replaced.push(path.to_vec());
                Ok(())
            }
        }
    }

    fn file(&mut self, path: &[u8], member: &Member, reader: &mut Reader<'_>) -> Result<()> {
        let attributes = self.attributes(member);
        match reader.map(member)? {
            Some(map) => self.tree.put_file(path, &mut Expanded::new(&map, reader), attributes),
            None => self.tree.put_file(path, reader, attributes),
        }
        .map_err(content_error)?;
        self.counts.files += 1;
        self.counts.bytes += member.size;
        Ok(())
    }

    fn symlink(&mut self, path: &[u8], member: &Member) -> Result<()> {
        if !is_valid_target(&member.target) {
            return Err(refused(path, "no symlink can point there"));
        }
        self.tree.put_symlink(path, member.target.clone(), member.modified)?;
        self.counts.symlinks += 1;
        Ok(())
    }

    /// Another name for a file that is already there.
    fn hard_link(&mut self, path: &[u8], member: &Member) -> Result<()> {
        let target = inside(&member.target)?;
        let stat = self.tree.stat(&target).map_err(|error| match error {
            TreeError::NotFound { .. } => refused(
                path,
                format!("it is a link to `{}`, which is not in the archive before it", lossy(&target)),
            ),
            other => other.into(),
        })?;
        if target == path && stat.kind != NodeKind::Directory {
            return Ok(());
        }
        self.check_replaced(path)?;
        match stat.kind {
            NodeKind::Directory => return Err(refused(path, "it is a hard link to a directory")),
            NodeKind::Symlink => {
                let points_to = self.tree.read_link(&target)?;
                self.tree.put_symlink(path, points_to, stat.modified)?;
                self.counts.symlinks += 1;
                return Ok(());
            }
            NodeKind::File => {}
        }
        let link = stat.link.unwrap_or(self.next_link);
        let attributes =
            Attributes { mode: stat.mode, modified: stat.modified, xattrs: stat.xattrs, link: Some(link) };
        if stat.link.is_none() {
            self.next_link += 1;
            self.copy(&target, &target, stat.size, attributes.clone())?;
        }
        self.copy(&target, path, stat.size, attributes)?;
        self.counts.files += 1;
        self.counts.bytes += stat.size;
        Ok(())
    }

    fn copy(&mut self, from: &[u8], to: &[u8], size: u64, attributes: Attributes) -> Result<()> {
        if size <= IN_MEMORY {
            let content = self.tree.read(from)?;
            self.tree.put_file(to, &mut &content[..], attributes)?;
        } else {
            let tree = self.tree.clone();
            self.tree.put_file(to, &mut FileReader { tree, path: from, offset: 0 }, attributes)?;
        }
        Ok(())
    }

    fn commit(mut self, new: NewSnapshot) -> Result<ImportReport> {
        for (path, attributes) in std::mem::take(&mut self.directories) {
            self.tree.put_directory(path, attributes)?;
        }
        self.replaced.sort();
        self.replaced.dedup();
        Ok(ImportReport {
            snapshot: self.tree.commit(new)?,
            files: self.counts.files,
            directories: self.below_root.len() as u64,
            symlinks: self.counts.symlinks,
            bytes: self.counts.bytes,
            skipped: self.skipped,
            replaced: self.replaced,
        })
    }
}

/// A file of a virtual tree as a stream.
struct FileReader<'a> {
    tree: VirtualTree,
    path: &'a [u8],
    offset: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let part = self.tree.read_range(self.path, self.offset, buffer.len() as u64);
        let part = part.map_err(std::io::Error::other)?;
        buffer[..part.len()].copy_from_slice(&part);
        self.offset += part.len() as u64;
        Ok(part.len())
    }
}

/// The path of a member in its one form. Names that lead out of the archive make it suspect as a whole.
fn inside(path: &[u8]) -> Result<Vec<u8>> {
    if path.starts_with(b"/") {
        return Err(refused(path, "its name is absolute"));
    }
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    if names.contains(&&b".."[..]) {
        return Err(refused(path, "its name leads out of the archive"));
    }
    if !names.iter().all(|name| is_valid_name(name)) {
        return Err(refused(path, "no file can have its name"));
    }
    Ok(names.join(&b'/'))
}

/// The directory that a path is in; empty for the root.
fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |end| &path[..end])
}

/// Content comes from the archive, so an error of it is one of the archive.
fn content_error(error: TreeError) -> ArchiveError {
    match error {
        TreeError::Content { source, .. } => ArchiveError::Read { source },
        other => other.into(),
    }
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
