//! File of exports(5) that a server shares with others: it changes only lines with its mark.
//!
//! ```text
//! NAME          the file
//! .NAME.lock    lock of the servers that change the file
//! .NAME.new     incomplete next version of the file, which is renamed to NAME
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;

use super::line;
use crate::error::NfsError;
use crate::state_dir::{state_error, sync_directory_of};

/// Maximum length of the file in bytes.
const FILE_MAX: u64 = 16 << 20;

/// Maximum time for which a change waits for another server.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval at which a lock that another server holds is tried again.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Permissions of a new file.
const NEW_FILE_MODE: u32 = 0o644;

/// File of exports(5).
#[derive(Debug)]
pub(super) struct ExportsFile {
    path: PathBuf,
    /// Id of the server in the mark of its lines.
    server: String,
}

impl ExportsFile {
    /// Describes the file at a path, which need not exist. A symlink is resolved.
    pub(super) fn new(path: &Path, server: String) -> Self {
        Self { path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()), server }
    }

    /// Replaces the lines of this server, atomically and durably. All other lines keep their bytes and their order.
    pub(super) fn replace_lines(&self, lines: &str) -> Result<(), NfsError> {
        let _lock = self.lock().map_err(state_error(&self.beside("lock")))?;
        self.replace_locked(lines).map_err(state_error(&self.path))
    }

    fn replace_locked(&self, lines: &str) -> io::Result<()> {
        let old = match File::open(&self.path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut content = Vec::new();
        if let Some(old) = &old {
            old.take(FILE_MAX + 1).read_to_end(&mut content)?;
            if content.len() as u64 > FILE_MAX {
                return Err(io::Error::new(ErrorKind::FileTooLarge, "it has more than 16 MiB"));
            }
        }
        // First in the file, because the last line of others may have no end, or be continued by a backslash.
        let new = [lines.as_bytes(), &without_lines_of(&content, &self.server)].concat();
        if old.is_some() && new == content {
            return Ok(());
        }
        let temporary = self.beside("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(NEW_FILE_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)?;
        let mode = match old.map(|old| old.metadata()).transpose()? {
            Some(old) => {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
                old.mode() & 0o7777
            }
            // Independent of the umask.
            None => NEW_FILE_MODE,
        };
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        file.write_all(&new)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        sync_directory_of(&self.path)
    }

    /// Returns the path of a file beside the file. `exportfs` does not read files whose names begin with a dot.
    fn beside(&self, suffix: &str) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.{suffix}"))
    }

    /// Takes the lock, which is released when the returned file is dropped.
    fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.beside("lock"))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::new(ErrorKind::TimedOut, "another server has it locked"));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the content of a file without the lines of a server. A line that continues another one belongs to that one.
fn without_lines_of(content: &[u8], server: &str) -> Vec<u8> {
    let mut rest = Vec::with_capacity(content.len());
    let mut is_continuation = false;
    for physical in content.split_inclusive(|byte| *byte == b'\n') {
        let text = physical.strip_suffix(b"\n").unwrap_or(physical);
        if is_continuation || !line::is_of_server(text, server) {
            rest.extend_from_slice(physical);
        }
        is_continuation = text.ends_with(b"\\");
    }
    rest
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Returns a line of a server.
    fn line_of(server: &str, name: &str) -> String {
        format!("/{name} *(rw) # elevo-workspace {server} {name}\n")
    }

    #[test]
    fn other_lines_keep_their_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.exports");
        let foreign =
            b"# comment \xff\r\n/srv *(ro)\n\n/home \\\n/x *(rw) # elevo-workspace a n\n/last *(rw) \\";
        fs::write(&path, foreign).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let (first, second) = (ExportsFile::new(&path, "a".into()), ExportsFile::new(&path, "b".into()));
        first.replace_lines(&line_of("a", "one")).unwrap();
        second.replace_lines(&line_of("b", "two")).unwrap();
        let both = [line_of("b", "two").as_bytes(), line_of("a", "one").as_bytes(), foreign].concat();
        assert_eq!(fs::read(&path).unwrap(), both);
        first.replace_lines("").unwrap();
        second.replace_lines("").unwrap();
        assert_eq!(fs::read(&path).unwrap(), foreign);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        let mut names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".test.exports.lock", "test.exports"]);
    }

    #[test]
    fn servers_that_change_the_file_at_the_same_time_lose_no_lines() {
        const ROUNDS: usize = 30;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.exports");
        let servers = ["a", "b", "c", "d"];
        std::thread::scope(|scope| {
            for server in servers {
                let file = ExportsFile::new(&path, server.to_owned());
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        file.replace_lines(&line_of(server, &format!("n{round}"))).unwrap();
                    }
                });
            }
        });
        let content = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = content.lines().collect();
        lines.sort_unstable();
        let expected =
            servers.map(|server| line_of(server, &format!("n{}", ROUNDS - 1)).trim_end().to_owned());
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_symlink_stays_and_its_target_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link.exports"));
        fs::write(&target, b"/x *(ro)\n").unwrap();
        symlink(&target, &link).unwrap();
        ExportsFile::new(&link, "a".into()).replace_lines(&line_of("a", "n")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), format!("{}/x *(ro)\n", line_of("a", "n")));
    }

    #[test]
    fn a_locked_or_unwritable_file_is_an_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none/test.exports");
        let missing = ExportsFile::new(&path, "a".into()).replace_lines("x");
        assert!(matches!(missing, Err(NfsError::State { .. })), "{missing:?}");
        let path = directory.path().join("test.exports");
        fs::write(&path, b"/x *(ro)\n").unwrap();
        symlink("/etc/passwd", directory.path().join(".test.exports.new")).unwrap();
        assert!(ExportsFile::new(&path, "a".into()).replace_lines(&line_of("a", "n")).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"/x *(ro)\n");
    }
}
