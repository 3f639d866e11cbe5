//! Archives of local files, made and unpacked.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use tar::{Archive, Builder, Entry, EntryType};

/// Why an archive could not be made or unpacked.
#[derive(Debug)]
pub(crate) enum ArchiveProblem {
    /// The system says no.
    Io { path: PathBuf, error: io::Error },
    /// The archive itself could not be read or written.
    Archive(io::Error),
    /// A name leads out of where it was to go.
    Escapes { path: String },
}

type Done<T = ()> = Result<T, ArchiveProblem>;

fn at(path: &Path) -> impl FnOnce(io::Error) -> ArchiveProblem {
    let path = path.to_owned();
    move |error| ArchiveProblem::Io { path, error }
}

/// Writes files and directories under new names. What cannot be copied is named.
pub(crate) fn pack(sources: &[(PathBuf, String)], to: impl Write) -> Done<Vec<PathBuf>> {
    let mut builder = Builder::new(to);
    builder.follow_symlinks(false);
    let mut skipped = Vec::new();
    for (path, name) in sources {
        add(&mut builder, path, Path::new(name), &mut skipped)?;
    }
    builder.into_inner().and_then(|mut to| to.flush()).map_err(ArchiveProblem::Archive)?;
    Ok(skipped)
}

fn add(builder: &mut Builder<impl Write>, path: &Path, name: &Path, skipped: &mut Vec<PathBuf>) -> Done {
    let kind = fs::symlink_metadata(path).map_err(at(path))?.file_type();
    if kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device() {
        skipped.push(path.to_owned());
        return Ok(());
    }
    builder.append_path_with_name(path, name).map_err(at(path))?;
    if kind.is_dir() {
        let mut entries =
            fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(at(path))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            add(builder, &entry.path(), &name.join(entry.file_name()), skipped)?;
        }
    }
    Ok(())
}

/// Unpacks an archive whose names all begin with one name, which becomes `root`. What cannot be copied is named.
///
/// The archive comes from where anything may run: nothing is written outside of `root`, and nothing through a symlink.
pub(crate) fn unpack(from: impl Read, root: &Path) -> Done<Vec<PathBuf>> {
    let (mut skipped, mut archive) = (Vec::new(), Archive::new(from));
    let mut directories = Vec::new();
    for entry in archive.entries().map_err(ArchiveProblem::Archive)? {
        let mut entry = entry.map_err(ArchiveProblem::Archive)?;
        let path = entry.path().map_err(ArchiveProblem::Archive)?.into_owned();
        let target = inside(root, &path)?;
        match entry.header().entry_type() {
            EntryType::Directory => {
                directories.push((target.clone(), entry.header().mode().unwrap_or(0o755)));
            }
            EntryType::Link => {
                link(&entry, root, &target)?;
                continue;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Symlink => {}
            _ => {
                skipped.push(path);
                continue;
            }
        }
        if entry.header().entry_type() == EntryType::Directory {
            make_directory(&target)?;
        } else {
            entry.unpack(&target).map_err(at(&target))?;
        }
    }
    // What fills the last block.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(ArchiveProblem::Archive)?;
    // Last, so that one that may not be written to can be filled.
    for (path, mode) in directories.into_iter().rev() {
        set_mode(&path, mode)?;
    }
    Ok(skipped)
}

fn make_directory(path: &Path) -> Done {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(at(path)),
    }
}

fn set_mode(path: &Path, mode: u32) -> Done {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777)).map_err(at(path))
}

fn link(entry: &Entry<impl Read>, root: &Path, target: &Path) -> Done {
    let name = entry.link_name().map_err(ArchiveProblem::Archive)?.unwrap_or_default();
    let first = inside(root, &name)?;
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(target)(error)),
        _ => fs::hard_link(&first, target).map_err(at(target)),
    }
}

/// Where a name of the archive is below `root`.
fn inside(root: &Path, name: &Path) -> Done<PathBuf> {
    let escapes = || ArchiveProblem::Escapes { path: name.to_string_lossy().into_owned() };
    let mut parts: Vec<&OsStr> = Vec::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(escapes()),
        }
    }
    let mut path = root.to_owned();
    for part in parts.iter().skip(1) {
        // Only what is a directory itself is entered.
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
            return Err(escapes());
        }
        path.push(part);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(members: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (name, kind, content) in members {
            let mut header = tar::Header::new_gnu();
            // As a program would write it that means harm.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o755);
            header.set_entry_type(*kind);
            let data = if *kind == EntryType::Regular { content.as_bytes() } else { &[] };
            if data.is_empty() {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn nothing_is_written_outside() {
        use EntryType::{Directory, Link, Regular, Symlink};
        let hostile: [&[(&str, EntryType, &str)]; 6] = [
            &[("a/../../out", Regular, "x")],
            &[("/out", Regular, "x")],
            &[("a", Symlink, ".."), ("a/out", Regular, "x")],
            &[("a", Directory, ""), ("a/b", Symlink, "../.."), ("a/b/out", Regular, "x")],
            &[("a", Directory, ""), ("a/b", Symlink, "../.."), ("a/b/c/out", Directory, "")],
            &[("a", Directory, ""), ("a/b", Link, "../secret")],
        ];
        for members in hostile {
            let place = tempfile::tempdir().unwrap();
            fs::write(place.path().join("secret"), "s").unwrap();
            fs::create_dir(place.path().join("in")).unwrap();
            let done = unpack(&archive(members)[..], &place.path().join("in/root"));
            assert!(matches!(done, Err(ArchiveProblem::Escapes { .. })), "{members:?}: {done:?}");
            assert!(
                !place.path().join("out").exists() && !place.path().join("in/out").exists(),
                "{members:?}"
            );
        }
    }

    #[test]
    fn a_file_in_the_place_of_a_symlink_replaces_it() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("secret", place.path().join("root")).unwrap();
        unpack(&archive(&[("a", EntryType::Regular, "x")])[..], &place.path().join("root")).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("secret")).unwrap(), "s");
        assert_eq!(fs::read_to_string(place.path().join("root")).unwrap(), "x");
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/file"), [0, 255, 10]).unwrap();
        std::os::unix::fs::symlink("/nowhere", from.join("link")).unwrap();
        let mut bytes = Vec::new();
        pack(&[(from.clone(), "name".to_owned())], &mut bytes).unwrap();
        let to = place.path().join("to");
        unpack(&bytes[..], &to).unwrap();
        assert_eq!(fs::read(to.join("below/file")).unwrap(), [0, 255, 10]);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
    }
}
