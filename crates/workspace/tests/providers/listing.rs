//! Listing of everything that a snapshot holds of a directory, as comparable text.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{lgetxattr, llistxattr};

/// Argument that makes this program list a directory instead of running tests.
pub(crate) const SUBCOMMAND: &str = "list-directory";

/// Lists a directory if the argument says so.
pub(crate) fn entry() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()?.as_bytes() != SUBCOMMAND.as_bytes() {
        return None;
    }
    print!("{}", listing(Path::new(&args.next()?)));
    Some(ExitCode::SUCCESS)
}

/// Returns a line for everything below a directory, inclusive, with tabs between path, kind, mode, time, size
/// and hash of the content or target, attributes, and link group.
pub(crate) fn listing(directory: &Path) -> String {
    // Directories may be too deep for an ordinary stack.
    let big = std::thread::Builder::new().stack_size(256 << 20);
    std::thread::scope(|scope| big.spawn_scoped(scope, || list(directory)).unwrap().join().unwrap())
}

fn list(directory: &Path) -> String {
    let mut lines = BTreeMap::new();
    let mut links = BTreeMap::new();
    add(directory, Path::new(""), &mut lines, &mut links);
    let mut text: String = lines.into_values().collect();
    let mut groups: Vec<Vec<String>> = links.into_values().filter(|names: &Vec<_>| names.len() > 1).collect();
    groups.sort();
    for group in groups {
        text += &format!("one file: {group:?}\n");
    }
    text
}

fn add(
    root: &Path,
    path: &Path,
    lines: &mut BTreeMap<Vec<u8>, String>,
    links: &mut BTreeMap<(u64, u64), Vec<String>>,
) {
    let full = if path.as_os_str().is_empty() { root.to_owned() } else { root.join(path) };
    let metadata = fs::symlink_metadata(&full).unwrap();
    let kind = metadata.file_type();
    let mode = metadata.permissions().mode() & 0o7777;
    // Read with the owner's permissions, whatever its mode is; the mode is changed only if needed.
    let readable = |bits: u32| {
        let shut = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        if fs::File::open(&full).is_err_and(shut)
            || (kind.is_dir() && full.join(".").metadata().is_err_and(shut))
        {
            fs::set_permissions(&full, fs::Permissions::from_mode(mode | bits)).unwrap();
        }
    };
    let what = if kind.is_dir() {
        readable(0o500);
        "directory".to_owned()
    } else if kind.is_symlink() {
        format!("symlink {:?}", fs::read_link(&full).unwrap())
    } else if kind.is_file() {
        readable(0o400);
        let hash = blake3::hash(&fs::read(&full).unwrap());
        if metadata.nlink() > 1 {
            let names = links.entry((metadata.dev(), metadata.ino())).or_default();
            names.push(format!("{path:?}"));
            names.sort();
        }
        format!("file {} {}", metadata.len(), &hash.to_hex()[..16])
    } else {
        "special".to_owned()
    };
    let time = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
    let xattrs = if kind.is_symlink() { String::new() } else { attributes(&full) };
    let line = format!("{path:?}\t{what}\t{mode:o}\t{time}\t{xattrs}\n");
    lines.insert(path.as_os_str().as_bytes().to_vec(), line);
    if kind.is_dir() {
        for entry in fs::read_dir(&full).unwrap() {
            add(root, &path.join(entry.unwrap().file_name()), lines, links);
        }
    }
    if !kind.is_symlink() && fs::symlink_metadata(&full).unwrap().permissions().mode() & 0o7777 != mode {
        fs::set_permissions(&full, fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn attributes(path: &Path) -> String {
    let mut names = vec![0; 64 << 10];
    let Ok(length) = llistxattr(path, &mut names[..]) else { return String::new() };
    let mut shown = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 4096];
        if let Ok(length) = lgetxattr(path, name, &mut value[..]) {
            shown.push(format!("{}={}", name.escape_ascii(), value[..length].escape_ascii()));
        }
    }
    shown.sort();
    shown.join(" ")
}
