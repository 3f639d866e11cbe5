//! The directory of a sandbox on the host.
//!
//! Nothing in it is visible inside the sandbox except the directory of sockets, which is mounted there
//! read-only.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use workspace_host::{NamespaceHolder, overlay};

/// Name of the socket that the guest agent connects to.
const AGENT_SOCKET: &str = "agent.sock";
/// Name of the socket on which a guest agent gets its start parameters (`guest/handover.rs`).
pub(crate) const START_SOCKET: &str = "start.sock";

/// Maximum size of the end of a log that is shown in an error, in bytes.
const LOG_TAIL: usize = 2_000;

/// The directory of one sandbox.
#[derive(Debug, Clone)]
pub struct SandboxDir {
    root: PathBuf,
}

impl SandboxDir {
    /// Names a directory, which need not exist.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the sockets that the guest agent connects to, such as `agent.sock`.
    pub fn sockets(&self) -> PathBuf {
        self.root.join("sockets")
    }

    /// Returns the directory of the output of commands.
    pub fn output(&self) -> PathBuf {
        self.root.join("output")
    }

    /// Returns the log of the guest agent.
    pub fn log(&self) -> PathBuf {
        self.root.join("agent.log")
    }

    /// Reads the end of the log, for an error; empty if there is none.
    pub(crate) fn log_tail(&self) -> String {
        let read = || {
            let mut log = fs::File::open(self.log())?;
            let start = log.metadata()?.len().saturating_sub(LOG_TAIL as u64);
            log.seek(SeekFrom::Start(start))?;
            let mut end = Vec::new();
            log.take(LOG_TAIL as u64).read_to_end(&mut end)?;
            io::Result::Ok(end)
        };
        tail(&String::from_utf8_lossy(&read().unwrap_or_default())).to_owned()
    }

    /// Returns the file in which a runtime records the sandbox's first process.
    pub fn process(&self) -> PathBuf {
        self.root.join("process")
    }

    /// Returns the file that exists while the sandbox is frozen, or about to be, and records how to thaw it.
    pub fn freeze_record(&self) -> PathBuf {
        self.root.join("frozen")
    }

    /// Returns the file of the last measurements of the sandbox.
    pub(crate) fn measurements(&self) -> PathBuf {
        self.root.join("measurements")
    }

    /// Makes the directories, and the file of measurements. Only the user of the server may enter; inside they
    /// are reached through mounts and file descriptors.
    pub(crate) fn make(&self) -> io::Result<()> {
        let make = |path: &Path, mode| fs::DirBuilder::new().mode(mode).create(path);
        make(&self.root, 0o700)?;
        make(&self.output(), 0o700)?;
        make(&self.sockets(), 0o755)?;
        // Independent of the umask of this process.
        fs::set_permissions(self.sockets(), fs::Permissions::from_mode(0o755))?;
        self.create_measurements_file()
    }

    /// Prepares the directory of a sandbox that is resumed from disk: makes what is missing, and removes the freeze
    /// record of its former processes.
    pub(crate) fn make_again(&self) -> io::Result<()> {
        if !self.root.try_exists()? {
            return self.make();
        }
        for (path, mode) in [(self.output(), 0o700), (self.sockets(), 0o755)] {
            fs::DirBuilder::new().recursive(true).mode(mode).create(&path)?;
        }
        fs::set_permissions(self.sockets(), fs::Permissions::from_mode(0o755))?;
        self.remove_freeze_record()?;
        self.create_measurements_file()
    }

    /// Removes the freeze record, if there is one. No process of the sandbox may be left, since only the record says
    /// how to thaw it.
    pub(crate) fn remove_freeze_record(&self) -> io::Result<()> {
        match fs::remove_file(self.freeze_record()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates the file for measurements of resource usage, unless it exists.
    pub(crate) fn create_measurements_file(&self) -> io::Result<()> {
        let mut options = fs::File::options();
        options.append(true).create(true).mode(0o600).open(self.measurements()).map(drop)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        remove_tree(&self.root)
    }

    /// Listens on the socket that the guest agent connects to.
    pub(crate) fn listen(&self) -> io::Result<tokio::net::UnixListener> {
        self.listen_on(AGENT_SOCKET)
    }

    /// Listens on a socket with this name. The address of a Unix socket is limited to 107 bytes and its path may be
    /// longer, so it is bound through a file descriptor of its directory.
    pub(crate) fn listen_on(&self, name: &str) -> io::Result<tokio::net::UnixListener> {
        let sockets = self.sockets();
        match fs::remove_file(sockets.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let directory = ShortPath::of(&sockets)?;
        let short = directory.path().join(name);
        let listener = tokio::net::UnixListener::bind(&short)?;
        // Every user may connect: a guest agent authenticates by its token, and the start socket serves only the
        // first connection.
        fs::set_permissions(&short, fs::Permissions::from_mode(0o666))?;
        Ok(listener)
    }
}

/// A directory that is open, so that it has the short path `/proc/self/fd/N` until this is dropped.
#[cfg(target_os = "linux")]
struct ShortPath(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl ShortPath {
    fn of(directory: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        Ok(Self(rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?))
    }

    fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd as _;
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// A directory by its own path: a path that is too long for a socket fails when it is bound.
#[cfg(not(target_os = "linux"))]
struct ShortPath(PathBuf);

#[cfg(not(target_os = "linux"))]
impl ShortPath {
    fn of(directory: &Path) -> io::Result<Self> {
        Ok(Self(directory.to_owned()))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

/// Returns the end of a log, at most [`LOG_TAIL`] bytes of whole characters.
pub(crate) fn tail(log: &str) -> &str {
    let log = log.trim();
    let start = log.len().saturating_sub(LOG_TAIL);
    let start = (start..log.len()).find(|index| log.is_char_boundary(*index)).unwrap_or(log.len());
    &log[start..]
}

/// Removes a directory and all in it, also directories without permissions. A missing directory is no error.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    Ok(overlay::remove_tree(&NamespaceHolder::None, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_can_be_bound_at_a_long_path() {
        let home = tempfile::tempdir().unwrap();
        let long = home.path().join("x".repeat(120));
        fs::create_dir(&long).unwrap();
        let dir = SandboxDir::new(long.join("sbx-1"));
        dir.make().unwrap();
        let listener = dir.listen().unwrap();
        std::os::unix::fs::symlink(dir.sockets(), home.path().join("s")).unwrap();
        let dialled = tokio::net::UnixStream::connect(home.path().join("s/agent.sock")).await;
        assert!(dialled.is_ok());
        drop(listener);
        dir.listen().unwrap();
    }

    #[test]
    fn the_end_of_a_log_is_limited_in_bytes_and_begins_with_a_whole_character() {
        let home = tempfile::tempdir().unwrap();
        let dir = SandboxDir::new(home.path().to_owned());
        assert_eq!(dir.log_tail(), "");
        fs::write(dir.log(), " short\n").unwrap();
        assert_eq!(dir.log_tail(), "short");
        let characters = "\u{e9}".repeat(LOG_TAIL);
        let half = LOG_TAIL / 2;
        for (end, expected) in [("", "\u{e9}".repeat(half)), ("x", "\u{e9}".repeat(half - 1) + "x")] {
            let log = characters.clone() + end;
            fs::write(dir.log(), &log).unwrap();
            assert_eq!(dir.log_tail(), expected);
            assert_eq!(tail(&log), expected);
        }
    }

    #[test]
    fn directories_without_permissions_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        for name in ["a/b", "a"] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }
}
