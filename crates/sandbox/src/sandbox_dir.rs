//! Where a sandbox keeps what it needs on the machine.
//!
//! Nothing here is seen inside but the directory of the socket, which is mounted there read-only.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use workspace_host::Holder;
use workspace_host::{HostError, overlay};

/// The socket that the guest agent dials.
const AGENT: &str = "agent.sock";
/// The socket on which a guest agent is given what it starts with.
pub(crate) const START: &str = "start.sock";

/// The directory of one sandbox.
#[derive(Debug, Clone)]
pub struct SandboxDir {
    root: PathBuf,
}

impl SandboxDir {
    /// At this directory.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// All of it.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Holds the socket that the guest agent dials, `agent.sock`.
    pub fn sockets(&self) -> PathBuf {
        self.root.join("sockets")
    }

    /// Holds what commands printed.
    pub fn output(&self) -> PathBuf {
        self.root.join("output")
    }

    /// What the guest agent said.
    pub fn log(&self) -> PathBuf {
        self.root.join("agent.log")
    }

    /// What a runtime finds the sandbox's processes again by.
    pub fn process(&self) -> PathBuf {
        self.root.join("process")
    }

    /// Tells that the sandbox is frozen, or about to be, and how it can be let go on; not there otherwise.
    pub fn frozen(&self) -> PathBuf {
        self.root.join("frozen")
    }

    /// Makes the directories. Only who runs the server may enter; inside they are reached through mounts and
    /// descriptors.
    pub(crate) fn make(&self) -> io::Result<()> {
        let make = |path: &Path, mode| fs::DirBuilder::new().mode(mode).create(path);
        make(&self.root, 0o700)?;
        make(&self.output(), 0o700)?;
        make(&self.sockets(), 0o755)?;
        // Whatever the mask of this process says.
        fs::set_permissions(self.sockets(), fs::Permissions::from_mode(0o755))
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        remove_tree(&self.root)
    }

    /// A listener on the guest agent's socket.
    pub(crate) fn listen(&self) -> io::Result<tokio::net::UnixListener> {
        self.listen_on(AGENT)
    }

    /// A listener on a socket. Its address may be 107 bytes long, a path longer: so it is bound through a descriptor
    /// of its directory.
    pub(crate) fn listen_on(&self, name: &str) -> io::Result<tokio::net::UnixListener> {
        let sockets = self.sockets();
        match fs::remove_file(sockets.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let directory = Short::of(&sockets)?;
        let short = directory.path().join(name);
        let listener = tokio::net::UnixListener::bind(&short)?;
        // Who connects is known by a token, or by being the first, not by a user.
        fs::set_permissions(&short, fs::Permissions::from_mode(0o666))?;
        Ok(listener)
    }
}

/// A directory by a path that is short, for as long as this lives.
#[cfg(target_os = "linux")]
struct Short(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Short {
    fn of(directory: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        Ok(Self(rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?))
    }

    fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd as _;
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Nothing is open by a path here: a path that is too long for a socket is refused when it is bound.
#[cfg(not(target_os = "linux"))]
struct Short(PathBuf);

#[cfg(not(target_os = "linux"))]
impl Short {
    fn of(directory: &Path) -> io::Result<Self> {
        Ok(Self(directory.to_owned()))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

/// Removes a directory and all in it, also what its owner made inaccessible to himself. What is not there is gone.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    overlay::remove_tree(&Holder::Machine, path).map_err(|error| match error {
        HostError::System { source, .. } => source,
        other => io::Error::other(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_reached_however_long_the_path() {
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
    fn what_its_owner_cannot_enter_is_removed_too() {
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
