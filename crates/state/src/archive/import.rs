//! Import of a tar archive as a snapshot: fills a virtual tree (a mutable tree in memory) from the members of the
//! archive and commits it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::error::{Result, refused};
use super::limits::{
    ArchiveLimits, MemoryBudget, MemoryUsage, REPORTED_PATHS_MAX, Usage, check_relative, path_components,
};
use super::member::{Kind, Member};
use super::reader::Reader;
use super::sparse::SparseRun;
use crate::commit_options::NewSnapshot;
use crate::content::ContentWriter;
use crate::node::{NodeKind, is_valid_target};
use crate::progress::Progress;
use crate::quote::shorten_path;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::virtual_tree::{Attributes, TreeError, VirtualTree};

/// Set-user-id and set-group-id bits.
const SET_ID: u16 = 0o6000;

/// Options of an import.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions<'a> {
    /// True to keep set-uid and set-gid bits, which are dropped otherwise.
    pub keep_set_id: bool,
    /// Limits on the content of the archive.
    pub limits: ArchiveLimits,
    /// Memory budget for names, attributes and extents, shared with other imports; `None` for no budget.
    pub memory: Option<&'a dyn MemoryBudget>,
}

/// Result of an import.
#[derive(Debug, Clone)]
pub struct ImportReport {
    /// Snapshot of the archive.
    pub snapshot: Snapshot,
    /// Number of regular files. Each hard link counts as a file.
    pub files: u64,
    /// Number of directories, without the root.
    pub directories: u64,
    /// Number of symlinks.
    pub symlinks: u64,
    /// Total size of the files in bytes. Each hard link counts with the size of its file.
    pub bytes: u64,
    /// Members that a snapshot cannot hold, such as devices: the first thousand.
    pub skipped: Vec<SkippedMember>,
    /// Number of all members that a snapshot cannot hold.
    pub skipped_count: u64,
    /// Paths of several members of the archive, at most a thousand. The snapshot has the last of these members.
    pub replaced: Vec<Vec<u8>>,
    /// Number of paths of several members. Beyond the first thousand, a path counts each time that it is replaced.
    pub replaced_count: u64,
}

/// A member that is not in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedMember {
    /// Path in the archive.
    pub path: Vec<u8>,
    /// Description of the kind of the member, such as `a device`.
    pub reason: &'static str,
}

/// Imports a tar archive as a snapshot. Fails without storing anything if the archive is damaged, exceeds the limits or
/// has a path that leads outside of it, and when the store's [`Cancel`](crate::Cancel) is set.
pub fn import_tar(
    store: &Store,
    input: &mut dyn Read,
    new: NewSnapshot,
    options: &ImportOptions<'_>,
    progress: &dyn Progress,
) -> Result<ImportReport> {
    let mut importer = Importer::new(store, options)?;
    let mut reader = Reader::new(input, store.cancel_flag().clone());
    progress.begin("importing entries", None);
    while let Some(member) = reader.next()? {
        importer.add_member(member, &mut reader)?;
        progress.advance(1);
    }
    progress.end();
    importer.commit(new)
}

/// State of an import.
struct Importer<'a> {
    /// Tree that the members are added to.
    tree: VirtualTree,
    keep_set_id: bool,
    /// Content of the archive so far, checked against the limits.
    usage: Usage,
    memory: MemoryUsage<'a>,
    /// Attributes of directories, by path. They are set after the last member, because adding entries to a directory
    /// changes its time.
    directories: BTreeMap<Vec<u8>, Attributes>,
    /// Last link label that was assigned. All names of a hard-linked file get the same label.
    last_link_label: u64,
    counts: Counts,
    skipped: Vec<SkippedMember>,
    replaced: BTreeSet<Vec<u8>>,
}

/// Counts for the report.
#[derive(Default)]
struct Counts {
    files: u64,
    symlinks: u64,
    bytes: u64,
    skipped: u64,
    replaced: u64,
    /// Number of directories of the tree that are already counted against the limits.
    directories: u64,
}

impl<'a> Importer<'a> {
    fn new(store: &Store, options: &ImportOptions<'a>) -> Result<Self> {
        Ok(Self {
            tree: store.empty_tree()?,
            keep_set_id: options.keep_set_id,
            usage: Usage::new(options.limits),
            memory: MemoryUsage(options.memory),
            directories: BTreeMap::new(),
            last_link_label: 0,
            counts: Counts::default(),
            skipped: Vec::new(),
            replaced: BTreeSet::new(),
        })
    }

    /// Adds a member to the tree, or records it as skipped.
    fn add_member(&mut self, mut member: Member, reader: &mut Reader<'_>) -> Result<()> {
        self.usage.add_member(&member)?;
        self.memory.add_member(&member)?;
        self.memory.add_entries(1)?;
        let path = normalized_path(&member.path)?;
        if let Kind::Other(reason) = member.kind {
            self.skip(path, reason);
            return Ok(());
        }
        if member.kind == Kind::Directory {
            self.tree.mkdir(&path)?;
            self.directories.insert(path, self.attributes(&mut member));
            return self.count_directories(1);
        }
        if path.is_empty() {
            return Err(refused(&member.path, "only a directory can be the root"));
        }
        match member.kind {
            Kind::HardLink => self.add_hard_link(&path, &member)?,
            Kind::Symlink => {
                self.uncount_replaced(&path)?;
                self.add_symlink(&path, member)?;
            }
            _ => {
                self.uncount_replaced(&path)?;
                self.add_file(&path, member, reader)?;
            }
        }
        self.count_directories(0)
    }

    /// Records a member that a snapshot cannot hold.
    fn skip(&mut self, path: Vec<u8>, reason: &'static str) {
        self.counts.skipped += 1;
        if self.skipped.len() < REPORTED_PATHS_MAX {
            self.skipped.push(SkippedMember { path, reason });
        }
    }

    /// Counts the directories that the last member added to the tree. A single path may create up to a thousand missing
    /// parents. `already_counted` is 1 if the member is a directory, which [`Usage`] has counted, and 0 otherwise.
    fn count_directories(&mut self, already_counted: u64) -> Result<()> {
        let total = self.tree.created_directories();
        let created = total - self.counts.directories;
        self.usage.add_entries(created.saturating_sub(already_counted))?;
        self.memory.add_entries(created)?;
        self.counts.directories = total;
        Ok(())
    }

    /// Returns the attributes of a member. Takes the extended attributes out of it.
    fn attributes(&self, member: &mut Member) -> Attributes {
        let mode = if self.keep_set_id { member.mode } else { member.mode & !SET_ID };
        let xattrs = std::mem::take(&mut member.xattrs);
        Attributes { mode, modified: member.modified, xattrs, link_label: None }
    }

    /// Subtracts the present entry of `path`, if any, from the counts, before a member replaces it. Refuses to replace
    /// a directory, as other tools do.
    fn uncount_replaced(&mut self, path: &[u8]) -> Result<()> {
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
                self.record_replaced(path);
                Ok(())
            }
        }
    }

    /// Records a path of several members.
    fn record_replaced(&mut self, path: &[u8]) {
        if self.replaced.contains(path) {
            return;
        }
        self.counts.replaced += 1;
        if self.replaced.len() < REPORTED_PATHS_MAX {
            self.replaced.insert(path.to_vec());
        }
    }

    /// Reads the content of a file and adds the file.
    fn add_file(&mut self, path: &[u8], mut member: Member, reader: &mut Reader<'_>) -> Result<()> {
        self.usage.add_bytes(member.size)?;
        let attributes = self.attributes(&mut member);
        let map = reader.sparse_map(&mut member)?;
        let (memory, mut counted) = (&self.memory, 0);
        let mut count_extents = |content: &ContentWriter<'_>| {
            let before = std::mem::replace(&mut counted, content.extent_count());
            memory.add_extents(content.extent_count() - before)
        };
        self.tree.put_file_with(path, attributes, |content| -> Result<()> {
            let mut push = |content: &mut ContentWriter<'_>, data: &[u8]| {
                content.push(data)?;
                count_extents(content)
            };
            let Some(map) = &map else {
                return reader.read_content(member.stored, |data| push(content, data));
            };
            for run in map.runs() {
                match run {
                    SparseRun::Hole(len) => content.push_zeros(len)?,
                    SparseRun::Data(len) => reader.read_content(len, |data| push(content, data))?,
                }
            }
            Ok(())
        })?;
        self.counts.files += 1;
        self.counts.bytes += member.size;
        Ok(())
    }

    fn add_symlink(&mut self, path: &[u8], member: Member) -> Result<()> {
        if !is_valid_target(&member.target) {
            return Err(refused(path, "its symlink target is empty, too long or contains a NUL byte"));
        }
        self.tree.put_symlink(path, member.target, member.modified)?;
        self.counts.symlinks += 1;
        Ok(())
    }

    /// Adds a hard link to a file that was imported before. A hard link to a symlink becomes a second symlink.
    fn add_hard_link(&mut self, path: &[u8], member: &Member) -> Result<()> {
        let target = normalized_path(&member.target)?;
        let stat = self.tree.stat(&target).map_err(|error| match error {
            TreeError::NotFound { .. } => refused(
                path,
                format!("it is a link to `{}`, which is not in the archive before it", shorten_path(&target)),
            ),
            other => other.into(),
        })?;
        if target == path && stat.kind != NodeKind::Directory {
            return Ok(());
        }
        self.uncount_replaced(path)?;
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
        self.usage.add_bytes(stat.size)?;
        if stat.link_label.is_none() {
            self.last_link_label += 1;
        }
        self.tree.link_file(&target, path, self.last_link_label)?;
        self.counts.files += 1;
        self.counts.bytes += stat.size;
        Ok(())
    }

    /// Sets the attributes of the directories and commits the tree.
    fn commit(mut self, new: NewSnapshot) -> Result<ImportReport> {
        for (path, attributes) in std::mem::take(&mut self.directories) {
            self.tree.put_directory(path, attributes)?;
        }
        Ok(ImportReport {
            snapshot: self.tree.commit(new)?,
            files: self.counts.files,
            directories: self.counts.directories,
            symlinks: self.counts.symlinks,
            bytes: self.counts.bytes,
            skipped: self.skipped,
            skipped_count: self.counts.skipped,
            replaced: self.replaced.into_iter().collect(),
            replaced_count: self.counts.replaced,
        })
    }
}

/// Returns the path of a member without `.` and empty components. Refuses absolute paths and `..`.
fn normalized_path(path: &[u8]) -> Result<Vec<u8>> {
    check_relative(path)?;
    Ok(path_components(path)?.join(&b'/'))
}
