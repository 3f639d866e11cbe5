//! Mounts of the machine: a file of a filesystem that is mounted more than once has several paths.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of bytes that are read from the list of mounts.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// Mounts of this process.
#[derive(Debug, Default)]
pub(super) struct MountTable(Vec<MountEntry>);

/// Line of `/proc/thread-self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct MountEntry {
    /// Major and minor number of the filesystem, as text.
    device: Vec<u8>,
    /// Path within the filesystem of the directory that is mounted; not `/` for a bind mount of a subdirectory.
    root: PathBuf,
    mount_point: PathBuf,
}

impl MountTable {
    /// Reads the mounts of this process. Empty if they cannot be read.
    pub(super) fn read() -> Self {
        let mut text = Vec::new();
        let read = File::open("/proc/thread-self/mountinfo")
            .and_then(|file| file.take(LIST_BYTES_MAX).read_to_end(&mut text));
        if read.is_err() { Self::default() } else { Self::parse(&text) }
    }

    fn parse(text: &[u8]) -> Self {
        // Id, parent, device, root, mount point, …
        let mount = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let device = fields.next()?.to_vec();
            Some(MountEntry {
                device,
                root: unescaped(fields.next()?),
                mount_point: unescaped(fields.next()?),
            })
        };
        Self(text.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// Finds other paths of the files and directories `hidden`, through other mounts of their filesystem. Stops after
    /// the first of them that makes more than `max` paths. `hides` returns true for hidden paths; it is asked about
    /// mounts of a directory below a path in `hidden`, which may be visible.
    pub(super) fn other_paths(
        &self,
        hidden: &BTreeSet<PathBuf>,
        hides: impl Fn(&Path) -> bool,
        max: usize,
    ) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for path in hidden {
            if found.len() > max {
                break;
            }
            let Some(mount) = self.mount_of(path) else { continue };
            // Path from the root of the filesystem.
            let Some(inside) = replace_prefix(path, &mount.mount_point, &mount.root) else { continue };
            let others =
                self.0.iter().filter(|it| it.device == mount.device && it.mount_point != mount.mount_point);
            for other in others.filter(|it| !it.mount_point.starts_with(path)) {
                // The other mount contains the hidden path, or only a part of it.
                if let Some(alias) = replace_prefix(&inside, &other.root, &other.mount_point) {
                    found.extend(is_same(path, &alias).then_some(alias));
                } else if let Some(original) = replace_prefix(&other.root, &inside, path) {
                    let is_hidden = hides(&original) && is_same(&original, &other.mount_point);
                    found.extend(is_hidden.then(|| other.mount_point.clone()));
                }
            }
        }
        found
    }

    /// Returns the mount of a path: the deepest one, and the last one at the same mount point.
    fn mount_of(&self, path: &Path) -> Option<&MountEntry> {
        let candidates = self.0.iter().filter(|it| path.starts_with(&it.mount_point));
        candidates.max_by_key(|it| it.mount_point.components().count())
    }
}

/// Replaces the prefix `from` of `path` by `to`. `None` if `path` has another prefix.
fn replace_prefix(path: &Path, from: &Path, to: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(from).ok()?;
    Some(if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) })
}

/// Returns true if both paths lead to the same file. False if another mount covers one, or it is not accessible.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::symlink_metadata(path).map(|it| (it.dev(), it.ino())).ok();
    one != other && identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Decodes octal escapes such as `\\040` in a field.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, more @ ..] = rest {
        let escaped = match more {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &more[3..] } else { more };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_characters_in_mounts_are_decoded() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 8:1 /home/a\\040b /mnt/x\\134y rw - ext4 /dev/sda rw\nbad\n";
        let table = MountTable::parse(text);
        assert_eq!(table.0.len(), 2);
        let second = &table.0[1];
        assert_eq!(
            (second.root.as_path(), second.mount_point.as_path()),
            (Path::new("/home/a b"), Path::new("/mnt/x\\y"))
        );
        assert_eq!(table.mount_of(Path::new("/mnt/x\\y/z")), Some(second));
        assert_eq!(table.mount_of(Path::new("/mnt/xy")), Some(&table.0[0]));
    }

    #[test]
    fn only_a_whole_prefix_is_replaced() {
        let replaced =
            |path: &str, from: &str, to: &str| replace_prefix(path.as_ref(), from.as_ref(), to.as_ref());
        assert_eq!(replaced("/home/a/.ssh", "/home/a", "/mnt"), Some("/mnt/.ssh".into()));
        assert_eq!(replaced("/home/a", "/home/a", "/mnt"), Some("/mnt".into()));
        assert_eq!(replaced("/home/ab", "/home/a", "/mnt"), None);
    }
}
