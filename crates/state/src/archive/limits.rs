//! Limits on the content of an untrusted archive. A few hundred compressed bytes can describe files of exabytes and
//! millions of directories, so a limit on the size of the archive is not enough.

use std::fmt;

use super::error::{ArchiveError, Result, refused};
use super::member::Member;
use crate::limit::LimitKind;
use crate::node::{Extent, NAME_MAX};
use crate::tree_path::DEPTH_MAX;

/// Longest value of an extended attribute in bytes (`XATTR_SIZE_MAX` of Linux).
const XATTR_VALUE_MAX: usize = 64 << 10;
/// Maximum total length of the names of a file's extended attributes in bytes, each with a NUL (`XATTR_LIST_MAX` of
/// Linux).
const XATTR_NAMES_MAX: usize = 64 << 10;
/// Maximum number of paths in each list of a report (skipped and replaced members); further members are only counted.
pub(super) const REPORTED_PATHS_MAX: usize = 1_000;

/// Limits on the content of an archive. The default allows files of 8 EiB in total, the largest offset of a file
/// system, and has no other limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Bytes of all files, including holes. An import and a [`TarReader`](crate::TarReader) count the size of a file
    /// again for each hard link to it.
    pub bytes: u64,
    /// Files, links, directories and skipped members. An import or extraction also counts parent directories that it
    /// creates although the archive has no member for them.
    pub entries: u64,
    /// Bytes of paths, link targets and extended attributes, which are kept in memory.
    pub metadata: u64,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { bytes: i64::MAX as u64, entries: u64::MAX, metadata: u64::MAX }
    }
}

/// Memory taken by one import from a budget that concurrent imports share.
pub trait MemoryBudget: fmt::Debug + Sync {
    /// Takes bytes from the shared budget. Returns false, and takes nothing, if the budget has fewer bytes left. All
    /// bytes that were taken are returned to the budget when `self` is dropped.
    fn take(&self, bytes: u64) -> bool;
}

/// Approximate memory of an entry besides its names and attributes, in bytes.
const ENTRY_MEMORY: u64 = 256;

/// Memory that one archive takes from a budget, which it shares with other archives. Without a budget (`None`), memory
/// is not limited.
#[derive(Debug)]
pub(super) struct MemoryUsage<'a>(pub(super) Option<&'a dyn MemoryBudget>);

impl MemoryUsage<'_> {
    /// Takes the memory of a member's names and attributes from the budget.
    pub(super) fn add_member(&self, member: &Member) -> Result<()> {
        self.take(metadata_of(member))
    }

    /// Takes the memory of `count` entries, without their names and attributes, from the budget.
    pub(super) fn add_entries(&self, count: u64) -> Result<()> {
        self.take(count.saturating_mul(ENTRY_MEMORY))
    }

    /// Takes the memory of `count` extents (chunks of data, or holes, of a file) from the budget.
    pub(super) fn add_extents(&self, count: usize) -> Result<()> {
        self.take((count * size_of::<Extent>()) as u64)
    }

    /// Takes `bytes` from the budget. Fails if it does not have as many.
    fn take(&self, bytes: u64) -> Result<()> {
        match self.0 {
            Some(budget) if bytes > 0 && !budget.take(bytes) => Err(ArchiveError::OverBudget),
            _ => Ok(()),
        }
    }
}

/// Returns the size of a member's path, link target and extended attributes, in bytes.
fn metadata_of(member: &Member) -> u64 {
    let xattrs: usize = member.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    (member.path.len() + member.target.len() + xattrs) as u64
}

/// Content of one archive so far, counted against its limits. Each method fails if a limit is exceeded.
#[derive(Debug)]
pub(super) struct Usage {
    limits: ArchiveLimits,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    metadata: u64,
}

impl Usage {
    pub(super) fn new(limits: ArchiveLimits) -> Self {
        Self { limits, bytes: 0, entries: 0, metadata: 0 }
    }

    /// Counts a member, without the content of a file. Also fails for invalid extended attributes.
    pub(super) fn add_member(&mut self, member: &Member) -> Result<()> {
        check_xattrs(member)?;
        self.add_entries(1)?;
        let metadata = metadata_of(member);
        self.metadata = add(self.metadata, metadata, self.limits.metadata, LimitKind::Metadata)?;
        Ok(())
    }

    /// Counts `count` entries.
    pub(super) fn add_entries(&mut self, count: u64) -> Result<()> {
        self.entries = add(self.entries, count, self.limits.entries, LimitKind::Entries)?;
        Ok(())
    }

    /// Counts `count` bytes of file content, before they are read.
    pub(super) fn add_bytes(&mut self, count: u64) -> Result<()> {
        self.bytes = add(self.bytes, count, self.limits.bytes, LimitKind::Bytes)?;
        Ok(())
    }
}

/// Returns `used + more`. Fails if that exceeds the limit.
fn add(used: u64, more: u64, limit: u64, kind: LimitKind) -> Result<u64> {
    let total = used.checked_add(more).filter(|total| *total <= limit);
    total.ok_or(ArchiveError::TooLarge { kind, limit })
}

/// Refuses extended attributes that no file can have. Otherwise the store would encode attributes that its decoder
/// rejects.
fn check_xattrs(member: &Member) -> Result<()> {
    let names: usize = member.xattrs.keys().map(|name| name.len() + 1).sum();
    let fits = |(name, value): (&Vec<u8>, &Vec<u8>)| {
        name.len() <= NAME_MAX && !name.contains(&0) && value.len() <= XATTR_VALUE_MAX
    };
    if names > XATTR_NAMES_MAX || !member.xattrs.iter().all(fits) {
        return Err(refused(&member.path, "no file can have its extended attributes"));
    }
    Ok(())
}

/// Splits the path of a member into its components, without empty components and `.`. Refuses `..` instead of resolving
/// it, because an archive with such a path is probably hostile. Accepts absolute paths, see [`check_relative`].
pub(super) fn path_components(path: &[u8]) -> Result<Vec<&[u8]>> {
    let names = || path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    if names().any(|name| name == b"..") {
        return Err(refused(path, "its name leads out of the archive"));
    }
    if names().nth(DEPTH_MAX).is_some() {
        return Err(refused(path, format!("it is nested too deeply: {DEPTH_MAX} levels are allowed")));
    }
    if !names().all(crate::node::is_valid_name) {
        return Err(refused(path, "no file can have its name"));
    }
    Ok(names().collect())
}

/// Refuses absolute paths.
pub(super) fn check_relative(path: &[u8]) -> Result<()> {
    if path.starts_with(b"/") { Err(refused(path, "its name is absolute")) } else { Ok(()) }
}
