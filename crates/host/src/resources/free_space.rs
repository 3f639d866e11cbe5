//! Free space of filesystems.

use std::fmt;
use std::path::Path;

use crate::resources::disk_usage::ENTRY_MIN;

/// Unit in which a filesystem is short of space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of content.
    Bytes,
    /// Inodes: files, directories and other entries.
    Files,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Files => "files",
        })
    }
}

/// Filesystem with less free space than its reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Unit of the other fields.
    pub unit: Unit,
    /// Free space.
    pub free: u64,
    /// Space that is to be kept free.
    pub reserve: u64,
}

impl Shortage {
    /// Checks the filesystem of a path. Returns `None` if there is enough space, or it cannot be read. The
    /// reserve is at most a tenth of the filesystem. One file is reserved for each [`ENTRY_MIN`] bytes
    /// of the reserve, the least that a file counts for.
    pub fn at(path: &Path, reserve: u64) -> Option<Self> {
        Self::at_multiple(path, reserve, 1)
    }

    /// Checks the filesystem of a path for a multiple of the reserve: `factor` times as much.
    pub fn at_multiple(path: &Path, reserve: u64, factor: u64) -> Option<Self> {
        let stat = rustix::fs::statvfs(path).ok()?;
        let short = |unit, free, all, reserve: u64| {
            let reserve = reserve.min(all / 10).saturating_mul(factor);
            (free < reserve).then_some(Self { unit, free, reserve })
        };
        let (free, all) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        // A filesystem that allocates inodes dynamically reports a total of 0.
        short(Unit::Bytes, free, all, reserve)
            .or_else(|| short(Unit::Files, stat.f_favail, stat.f_files, reserve / ENTRY_MIN))
    }

    /// Returns whether less than half of the reserve is left.
    pub fn is_severe(&self) -> bool {
        self.free < self.reserve / 2
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, free, reserve } = self;
        write!(f, "the disk has {free} {unit} left; {reserve} must stay free")
    }
}

/// Returns the size of the filesystem of a path, in bytes; `None` if it cannot be read.
pub fn size(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_blocks * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_at_most_a_tenth() {
        let home = tempfile::tempdir().unwrap();
        let all = size(home.path()).unwrap();
        assert_eq!(Shortage::at(home.path(), 0), None);
        // No filesystem has this much free space.
        let short = Shortage::at_multiple(home.path(), u64::MAX, 11).unwrap();
        assert_eq!((short.unit, short.reserve), (Unit::Bytes, all / 10 * 11));
        assert!(short.free <= all && short.to_string().contains("bytes left; "));
        assert_eq!(Shortage::at(&home.path().join("none"), u64::MAX), None);
    }

    #[test]
    fn a_shortage_is_severe_below_half() {
        let short = |free| Shortage { unit: Unit::Bytes, free, reserve: 100 };
        assert!(!short(99).is_severe() && !short(50).is_severe() && short(49).is_severe());
    }
}
