//! Packs and unpacks archives of local files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use tar::{Builder, Header};
use workspace_state::{
    ArchiveError, ArchiveLimits, Cancel, ExtractOptions, ExtractProfile, Extractor, MemberPaths,
};

/// Maximum number of entries in an archive from a sandbox.
const ENTRIES_MAX: u64 = 20_000_000;
/// Maximum total size of the names in such an archive, in bytes.
const METADATA_MAX: u64 = 4 << 30;

/// Error of packing or unpacking an archive.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// A local file could not be read or written; or, with `BrokenPipe`, the archive could not be sent while this file
    /// was packed.
    Io { path: PathBuf, error: io::Error },
    /// A local file became shorter while it was packed.
    Shortened(PathBuf),
    /// The end of the packed archive could not be sent.
    Send(io::Error),
    /// The archive from the sandbox could not be read.
    Unpack(ArchiveError),
    /// A member would be written outside the target, or contradicts another one.
    Refused(String),
    /// The archive has more members or longer names than allowed.
    TooLarge(String),
}

type CopyResult<T = ()> = Result<T, CopyError>;

/// Entries that were not copied, because they are not files, directories or symlinks.
#[derive(Debug, Default)]
pub(crate) struct SkippedEntries {
    pub(crate) paths: Vec<PathBuf>,
    /// Number of further entries, whose paths are not known.
    pub(crate) unlisted: u64,
}

impl SkippedEntries {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.unlisted == 0
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.unlisted += other.unlisted;
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> CopyError {
    let path = path.to_owned();
    move |error| CopyError::Io { path, error }
}

/// Writes files and directories into an archive: local paths with their names in it. Returns the sockets, pipes and
/// devices, which are skipped.
pub(crate) fn pack(sources: &[(PathBuf, String)], to: impl Write) -> CopyResult<SkippedEntries> {
    let mut builder = Builder::new(to);
    builder.follow_symlinks(false);
    let mut skipped = Vec::new();
    for (path, name) in sources {
        add(&mut builder, path, Path::new(name), &mut skipped)?;
    }
    builder.into_inner().and_then(|mut to| to.flush()).map_err(CopyError::Send)?;
    Ok(SkippedEntries { paths: skipped, unlisted: 0 })
}

/// Adds a file, or a directory with all entries, to an archive.
fn add(
    builder: &mut Builder<impl Write>,
    path: &Path,
    name: &Path,
    skipped: &mut Vec<PathBuf>,
) -> CopyResult {
    let file_type = fs::symlink_metadata(path).map_err(io_error(path))?.file_type();
    if file_type.is_socket()
        || file_type.is_fifo()
        || file_type.is_block_device()
        || file_type.is_char_device()
    {
        skipped.push(path.to_owned());
        return Ok(());
    }
    if file_type.is_file() {
        return add_file(builder, path, name);
    }
    builder.append_path_with_name(path, name).map_err(io_error(path))?;
    if file_type.is_dir() {
        let mut entries =
            fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(io_error(path))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            add(builder, &entry.path(), &name.join(entry.file_name()), skipped)?;
        }
    }
    Ok(())
}

/// Adds a file with the size that it has now: another program may append to it or shorten it meanwhile, and the library
/// would write content of another length than the header says.
fn add_file(builder: &mut Builder<impl Write>, path: &Path, name: &Path) -> CopyResult {
    let mut file = File::open(path).map_err(io_error(path))?;
    let metadata = file.metadata().map_err(io_error(path))?;
    let has_holes = seek(&file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < metadata.len());
    file.rewind().map_err(io_error(path))?;
    if has_holes {
        // The library writes the runs of data that it finds first, so what is appended later does no harm.
        builder.append_file(name, &mut file).map_err(io_error(path))?;
        let len = file.metadata().map_err(io_error(path))?.len();
        return if len < metadata.len() { Err(CopyError::Shortened(path.to_owned())) } else { Ok(()) };
    }
    let mut header = Header::new_gnu();
    header.set_metadata(&metadata);
    let content = FileStart { file, remaining: metadata.len() };
    builder.append_data(&mut header, name, content).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => CopyError::Shortened(path.to_owned()),
        _ => io_error(path)(error),
    })
}

/// Reader of the first bytes of a file. Fails with `UnexpectedEof` if the file is shorter.
struct FileStart {
    file: File,
    /// Number of bytes to read.
    remaining: u64,
}

impl Read for FileStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&self.file).take(self.remaining).read(buffer)?;
        if count == 0 && self.remaining > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.remaining -= count as u64;
        Ok(count)
    }
}

/// Unpacks an archive: its content becomes the file or directory `root`. `paths` says whether the first component of
/// the members' paths is a name that `root` replaces, or the paths are relative to `root`. Returns devices and pipes,
/// which are skipped.
///
/// The archive comes from a sandbox and is not trusted: nothing outside `root` is changed, and no symlink is followed.
pub(crate) fn unpack(mut from: impl Read, root: &Path, paths: MemberPaths) -> CopyResult<SkippedEntries> {
    let name = root.file_name().ok_or_else(|| io_error(root)(io::ErrorKind::InvalidInput.into()))?;
    let directory = root.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let options = ExtractOptions {
        profile: ExtractProfile::Copy { name: name.as_bytes().to_vec(), paths },
        limits: ArchiveLimits { entries: ENTRIES_MAX, metadata: METADATA_MAX, ..ArchiveLimits::default() },
        cancel: Cancel::new(),
    };
    let to_copy_error = |error| copy_error(error, directory);
    let mut extractor = Extractor::new(directory, options).map_err(to_copy_error)?;
    extractor.extract(&mut from).map_err(to_copy_error)?;
    let report = extractor.report();
    Ok(SkippedEntries {
        paths: report.skipped.iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect(),
        unlisted: report.skipped_count - report.skipped.len() as u64,
    })
}

fn copy_error(error: ArchiveError, directory: &Path) -> CopyError {
    match error {
        ArchiveError::Extract { path, source } => CopyError::Io { path: directory.join(path), error: source },
        ArchiveError::Refused { .. } => CopyError::Refused(error.to_string()),
        ArchiveError::TooLarge { .. } => CopyError::TooLarge(error.to_string()),
        other => CopyError::Unpack(other),
    }
}

#[cfg(test)]
mod tests {
    use tar::EntryType;
    use workspace_state::LimitKind;

    use super::*;

    fn archive(members: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (name, kind, content) in members {
            let mut header = Header::new_gnu();
            // The name is written directly, because the library rejects unsafe names.
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
    fn hostile_archives_write_nothing_outside_the_target() {
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
            let temporary = tempfile::tempdir().unwrap();
            fs::write(temporary.path().join("secret"), "s").unwrap();
            fs::create_dir(temporary.path().join("in")).unwrap();
            let root = temporary.path().join("in/root");
            let done = unpack(&archive(members)[..], &root, MemberPaths::BelowName);
            assert!(matches!(done, Err(CopyError::Refused(_))), "{members:?}: {done:?}");
            assert!(
                !temporary.path().join("out").exists() && !temporary.path().join("in/out").exists(),
                "{members:?}"
            );
        }
    }

    #[test]
    fn an_archive_above_a_limit_is_not_reported_as_hostile() {
        let error = ArchiveError::TooLarge { kind: LimitKind::Entries, limit: ENTRIES_MAX };
        assert!(matches!(copy_error(error, Path::new("in")), CopyError::TooLarge(_)));
    }

    #[test]
    fn a_directory_member_does_not_change_the_target_of_a_symlink_member() {
        use EntryType::{Directory, Symlink};
        use std::os::unix::fs::PermissionsExt as _;
        let temporary = tempfile::tempdir().unwrap();
        let private = temporary.path().join("private");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        let target = private.to_str().unwrap();
        let hostile: [&[(&str, EntryType, &str)]; 2] = [
            &[("a", Directory, ""), ("a/x", Symlink, target), ("a/x", Directory, "")],
            &[("a", Symlink, target), ("a", Directory, "")],
        ];
        for (number, members) in hostile.into_iter().enumerate() {
            let root = temporary.path().join(number.to_string());
            let done = unpack(&archive(members)[..], &root, MemberPaths::BelowName);
            assert!(matches!(done, Err(CopyError::Refused(_))), "{done:?}");
            assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o7777, 0o700);
        }
    }

    #[test]
    fn a_file_replaces_a_symlink_of_the_same_name() {
        let temporary = tempfile::tempdir().unwrap();
        fs::write(temporary.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("secret", temporary.path().join("root")).unwrap();
        let archive = archive(&[("a", EntryType::Regular, "x")]);
        unpack(&archive[..], &temporary.path().join("root"), MemberPaths::BelowName).unwrap();
        assert_eq!(fs::read_to_string(temporary.path().join("secret")).unwrap(), "s");
        assert_eq!(fs::read_to_string(temporary.path().join("root")).unwrap(), "x");
    }

    #[test]
    fn packed_files_are_unpacked() {
        let temporary = tempfile::tempdir().unwrap();
        let from = temporary.path().join("from");
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/file"), [0, 255, 10]).unwrap();
        std::os::unix::fs::symlink("/nowhere", from.join("link")).unwrap();
        let mut bytes = Vec::new();
        pack(&[(from.clone(), "name".to_owned())], &mut bytes).unwrap();
        let to = temporary.path().join("to");
        unpack(&bytes[..], &to, MemberPaths::BelowName).unwrap();
        assert_eq!(fs::read(to.join("below/file")).unwrap(), [0, 255, 10]);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
    }

    /// Archive in memory that changes a file once its header was written.
    struct ChangingWriter<'a, F> {
        bytes: &'a mut Vec<u8>,
        member: &'a str,
        change: F,
    }

    impl<F: FnMut()> Write for ChangingWriter<'_, F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.starts_with(format!("{}\0", self.member).as_bytes()) {
                (self.change)();
            }
            self.bytes.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Packs the files `log` and `next`, and changes the length of `log` meanwhile. Returns the result and the archive.
    fn pack_while_log_changes(
        from: &Path,
        log: &[u8],
        new_len: u64,
    ) -> (CopyResult<SkippedEntries>, Vec<u8>) {
        fs::create_dir(from).unwrap();
        let path = from.join("log");
        fs::write(&path, log).unwrap();
        fs::write(from.join("next"), "next").unwrap();
        let mut bytes = Vec::new();
        let change = || File::options().write(true).open(&path).unwrap().set_len(new_len).unwrap();
        let to = ChangingWriter { bytes: &mut bytes, member: "name/log", change };
        (pack(&[(from.to_owned(), "name".to_owned())], to), bytes)
    }

    #[test]
    fn a_file_that_grows_is_packed_with_its_former_size() {
        let temporary = tempfile::tempdir().unwrap();
        let log = [b'x'; 3_000];
        let (packed, bytes) = pack_while_log_changes(&temporary.path().join("from"), &log, 9_000);
        packed.unwrap();
        let to = temporary.path().join("to");
        unpack(&bytes[..], &to, MemberPaths::BelowName).unwrap();
        assert_eq!(fs::read(to.join("log")).unwrap(), log);
        assert_eq!(fs::read_to_string(to.join("next")).unwrap(), "next");
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error_with_its_path() {
        let temporary = tempfile::tempdir().unwrap();
        let from = temporary.path().join("from");
        let (packed, _) = pack_while_log_changes(&from, &[b'x'; 3_000], 100);
        assert!(
            matches!(&packed, Err(CopyError::Shortened(path)) if *path == from.join("log")),
            "{packed:?}"
        );
    }
}
