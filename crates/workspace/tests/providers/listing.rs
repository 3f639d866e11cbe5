//! Listing of a directory as text, with everything that a snapshot records of it. Tests compare the listings of a
//! workspace and of a checkout.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{lgetxattr, llistxattr};

/// Subcommand of this program that lists a directory instead of running tests.
pub(crate) const SUBCOMMAND: &str = "list-directory";

/// Prints the listing of a directory if the first argument is [`SUBCOMMAND`]. Returns `None` if it is not.
pub(crate) fn entry() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()?.as_bytes() != SUBCOMMAND.as_bytes() {
        return None;
    }
    print!("{}", listing(Path::new(&args.next()?)));
    Some(ExitCode::SUCCESS)
}

/// Returns a line for a directory and each entry below it, sorted by path. The fields of a line are separated by tabs:
/// path; type with size and hash of the content, or with the target of a symlink; mode; modification time; extended
/// attributes. A last line for each hard-linked file has all its names.
pub(crate) fn listing(directory: &Path) -> String {
    // Directories may be nested too deeply for the default size of the call stack.
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    std::thread::scope(|scope| thread.spawn_scoped(scope, || list(directory)).unwrap().join().unwrap())
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

/// Adds the lines of `path` and of all entries below it. Collects the names of hard-linked files by device and inode.
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
    // Adds permissions of the owner (`bits`) if the entry cannot be read with its mode.
    let make_readable = |bits: u32| {
        let is_denied = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        if fs::File::open(&full).is_err_and(is_denied)
            || (kind.is_dir() && full.join(".").metadata().is_err_and(is_denied))
        {
            fs::set_permissions(&full, fs::Permissions::from_mode(mode | bits)).unwrap();
        }
    };
    let type_and_content = if kind.is_dir() {
        make_readable(0o500);
        "directory".to_owned()
    } else if kind.is_symlink() {
        format!("symlink {:?}", fs::read_link(&full).unwrap())
    } else if kind.is_file() {
        make_readable(0o400);
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
    let line = format!("{path:?}\t{type_and_content}\t{mode:o}\t{time}\t{xattrs}\n");
    lines.insert(path.as_os_str().as_bytes().to_vec(), line);
    if kind.is_dir() {
        for entry in fs::read_dir(&full).unwrap() {
            add(root, &path.join(entry.unwrap().file_name()), lines, links);
        }
    }
    // Restores the mode.
    if !kind.is_symlink() && fs::symlink_metadata(&full).unwrap().permissions().mode() & 0o7777 != mode {
        fs::set_permissions(&full, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Returns the `user.*` extended attributes of a file or directory, sorted by name.
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
