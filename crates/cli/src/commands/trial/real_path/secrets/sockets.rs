//! Sockets in the filesystem that programs of the machine listen on.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of bytes that are read from the list of sockets.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// Returns sockets of this network namespace, with symlinks resolved: at most `max` outside of the directories
/// `without_sockets`, and at most `max` inside of them. The program cannot connect to those inside. Also returns true
/// if sockets outside were omitted; those inside are then omitted, too.
pub(super) fn find(without_sockets: &[PathBuf], max: usize) -> (BTreeSet<PathBuf>, bool) {
    let Ok(list) = File::open("/proc/net/unix") else { return (BTreeSet::new(), false) };
    let (mut found, mut inside) = (BTreeSet::new(), BTreeSet::new());
    for line in BufReader::new(list.take(LIST_BYTES_MAX)).split(b'\n').skip(1).map_while(Result::ok) {
        let Some(path) = path(&line).and_then(|path| fs::canonicalize(path).ok()) else { continue };
        let is_socket = fs::symlink_metadata(&path).is_ok_and(|it| it.file_type().is_socket());
        if !is_socket {
            continue;
        }
        if without_sockets.iter().any(|it| path.starts_with(it)) {
            if inside.len() < max {
                inside.insert(path);
            }
        } else if found.len() == max && !found.contains(&path) {
            return (found, true);
        } else {
            found.insert(path);
        }
    }
    found.extend(inside);
    (found, false)
}

/// Returns the path in a line `Num RefCount Protocol Flags Type St Inode Path`. An abstract name has none.
fn path(line: &[u8]) -> Option<&Path> {
    let mut rest = line;
    for _ in 0..7 {
        rest = rest.trim_ascii_start();
        rest = &rest[rest.iter().position(|byte| *byte == b' ')?..];
    }
    let path = rest.strip_prefix(b" ")?;
    path.starts_with(b"/").then(|| Path::new(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_socket_is_the_last_field() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01   1234 ";
        for (name, expected) in
            [("/a b/c ", Some("/a b/c ")), ("@abstract", None), ("relative", None), ("", None)]
        {
            let line = format!("{line}{name}");
            assert_eq!(path(line.as_bytes()), expected.map(Path::new), "{name}");
        }
        assert_eq!(path(b"0000: 2 0"), None);
    }
}
