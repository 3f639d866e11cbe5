//! Room that a filesystem has left.

use std::fmt;
use std::path::Path;

use crate::resources::disk_usage::ENTRY_MIN;

/// Unit in which a filesystem has too little left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of content.
    Bytes,
    /// Files, directories and all else that takes an inode.
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

/// A filesystem with less room than is to be kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Unit of the other two.
    pub unit: Unit,
    /// Room that is left.
    pub free: u64,
    /// Room that is to be kept free.
    pub reserve: u64,
}

impl Shortage {
    /// Looks at the filesystem of a path. None where there is enough, and where nothing can be seen. A small filesystem keeps
    /// a tenth free at most, and every one as many files as fit into the bytes.
    pub fn at(path: &Path, reserve: u64) -> Option<Self> {
        Self::at_times(path, reserve, 1)
    }

    /// The same for so many times what is kept free.
    pub fn at_times(path: &Path, reserve: u64, times: u64) -> Option<Self> {
        let stat = rustix::fs::statvfs(path).ok()?;
        let short = |unit, free, all, reserve: u64| {
            let reserve = reserve.min(all / 10).saturating_mul(times);
            (free < reserve).then_some(Self { unit, free, reserve })
        };
        let (free, all) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        // A filesystem that makes inodes as they are needed says that it has none in all.
        short(Unit::Bytes, free, all, reserve)
            .or_else(|| short(Unit::Files, stat.f_favail, stat.f_files, reserve / ENTRY_MIN))
    }

    /// Returns whether less than half of what is kept free is left.
    pub fn is_severe(&self) -> bool {
        self.free < self.reserve / 2
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, free, reserve } = self;
        write!(f, "the disk has {free} {unit} left, of which {reserve} are kept free")
    }
}

/// Bytes that the filesystem of a path has in all.
pub fn size(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_blocks * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_tenth_is_never_kept_free() {
        let home = tempfile::tempdir().unwrap();
        let all = size(home.path()).unwrap();
        assert_eq!(Shortage::at(home.path(), 0), None);
        // No filesystem has this much left.
        let short = Shortage::at_times(home.path(), u64::MAX, 11).unwrap();
        assert_eq!((short.unit, short.reserve), (Unit::Bytes, all / 10 * 11));
        assert!(short.free <= all && short.to_string().contains("bytes left, of which"));
        assert_eq!(Shortage::at(&home.path().join("none"), u64::MAX), None);
    }

    #[test]
    fn a_shortage_is_severe_below_half() {
        let short = |free| Shortage { unit: Unit::Bytes, free, reserve: 100 };
        assert!(!short(99).is_severe() && !short(50).is_severe() && short(49).is_severe());
    }
}
