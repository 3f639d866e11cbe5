//! Entries of a directory that a snapshot skips, with reasons.

use std::fmt;
use std::path::PathBuf;

use super::error::{DirectoryError, Result};

/// Maximum number of entries of which a report has the path and the reason. Further entries are only counted.
const NAMED_MAX: usize = 1_000;
/// Maximum total length in bytes of the paths in a report: about a thousand of the longest paths that the kernel
/// accepts.
const NAMED_BYTES_MAX: usize = 4 << 20;

/// Entry that a snapshot skips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedEntry {
    /// Path relative to the directory.
    pub path: PathBuf,
    /// Reason for skipping the entry.
    pub reason: SkipReason,
}

/// Reason for skipping an entry in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// Entry is a socket.
    Socket,
    /// Entry is a block or character device.
    Device,
    /// Entry is a named pipe.
    Fifo,
    /// File changed each time that it was read.
    Changing,
    /// Permission to read the entry was denied.
    NoPermission,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Fifo => "a named pipe",
            Self::Changing => "it kept changing while it was read",
            Self::NoPermission => "no permission to read it",
        })
    }
}

impl SkipReason {
    /// Returns true if user data is missing from the snapshot. Returns false for special files (sockets, devices,
    /// pipes), which no snapshot holds.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Changing | Self::NoPermission)
    }
}

/// Collector of the entries that a scan skips. Keeps the first thousand entries with lost user data and the first
/// thousand special files, and only counts the others. An entry is *named* if its path is kept.
#[derive(Debug, Default)]
pub struct SkippedCollector {
    /// Entries whose user data is missing from the snapshot.
    lost: SkippedList,
    /// Special files, which no snapshot holds.
    special: SkippedList,
    /// True if the paths of all special files are kept.
    names_all_special: bool,
}

/// Skipped entries of one kind: losses or special files.
#[derive(Debug, Default)]
struct SkippedList {
    /// The first entries, up to the limits.
    first: Vec<SkippedEntry>,
    /// Total length of the paths in `first`, in bytes.
    bytes: usize,
    /// Number of all entries.
    count: u64,
}

/// Number of entries whose paths are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// All entries.
    All,
    /// At most as many as [`NAMED_MAX`] and [`NAMED_BYTES_MAX`] allow.
    Limited,
}

impl SkippedList {
    /// Adds an entry. Returns true if it is named.
    fn push(&mut self, skipped: SkippedEntry, naming: Naming) -> bool {
        self.count += 1;
        let bytes = self.bytes + skipped.path.as_os_str().len();
        let fits = naming == Naming::All || (self.first.len() < NAMED_MAX && bytes <= NAMED_BYTES_MAX);
        if fits {
            self.bytes = bytes;
            self.first.push(skipped);
        }
        fits
    }
}

impl SkippedCollector {
    /// Creates a collector that names all special files. The caller must limit their number.
    pub(super) fn naming_all_special() -> Self {
        Self { names_all_special: true, ..Self::default() }
    }

    /// Adds an entry. Returns true if it is named, which takes memory for its path.
    pub fn push(&mut self, skipped: SkippedEntry) -> bool {
        if skipped.reason.is_loss() {
            self.lost.push(skipped, Naming::Limited)
        } else {
            let naming = if self.names_all_special { Naming::All } else { Naming::Limited };
            self.special.push(skipped, naming)
        }
    }

    /// Returns the named entries, sorted by path, and the number of all entries. If there are too many, entries with
    /// lost user data take precedence over special files.
    pub fn finish(self) -> (Vec<SkippedEntry>, u64) {
        let Self { lost, special, names_all_special } = self;
        let count = lost.count + special.count;
        let mut named = lost.first;
        let special_max = if names_all_special { usize::MAX } else { NAMED_MAX - named.len() };
        named.extend(special.first.into_iter().take(special_max));
        (sorted(named), count)
    }

    /// Returns the result of [`SkippedCollector::finish`]. Fails if user data is missing.
    pub fn finish_if_complete(self) -> Result<(Vec<SkippedEntry>, u64)> {
        if self.lost.count == 0 {
            return Ok(self.finish());
        }
        Err(DirectoryError::Incomplete { skipped: sorted(self.lost.first), count: self.lost.count })
    }
}

/// Sorts entries by path.
fn sorted(mut skipped: Vec<SkippedEntry>) -> Vec<SkippedEntry> {
    skipped.sort_by(|one, other| one.path.cmp(&other.path));
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(path: String, reason: SkipReason) -> SkippedEntry {
        SkippedEntry { path: path.into(), reason }
    }

    #[test]
    fn a_thousand_entries_are_named_and_lost_data_takes_precedence() {
        let mut entries = SkippedCollector::default();
        for number in 0..1_500 {
            entries.push(skipped(format!("pipe-{number:04}"), SkipReason::Fifo));
        }
        entries.push(skipped("lost".to_owned(), SkipReason::NoPermission));
        let (named, count) = entries.finish();
        assert_eq!((named.len(), count), (1_000, 1_501));
        assert_eq!(named[0].path.as_os_str(), "lost");
    }

    #[test]
    fn the_total_length_of_named_paths_is_limited() {
        let mut entries = SkippedCollector::default();
        for number in 0..100 {
            entries.push(skipped(format!("{number}/{}", "x".repeat(250_000)), SkipReason::Fifo));
        }
        let (named, count) = entries.finish();
        assert!(named.len() < 20 && !named.is_empty(), "{}", named.len());
        assert_eq!(count, 100);
    }

    #[test]
    fn an_error_names_few_entries_and_counts_the_rest() {
        let mut entries = SkippedCollector::default();
        for number in 0..1_200 {
            entries.push(skipped(format!("{number:04}"), SkipReason::Changing));
        }
        let message = entries.finish_if_complete().unwrap_err().to_string();
        assert!(
            message.starts_with("a snapshot would lack `0000` (") && message.ends_with(" and 1195 more"),
            "{message}"
        );
    }
}
