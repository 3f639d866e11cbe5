//! What there is on systems other than Linux: what the docker runtime and workspaces of plain files need. All else
//! says that it needs Linux.

use std::path::Path;
use std::process::ExitCode;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{HostError, Result};

/// Here no helpers are the same program, started again.
pub fn helper_main() -> Option<ExitCode> {
    None
}

/// Which process is meant, for good. Containers run on a machine of their own here, whose processes are not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Process {}

impl Process {
    /// The process that has this number now.
    pub fn of(_pid: Pid) -> Result<Self> {
        Err(HostError::NeedsLinux { what: "looking at the processes of a sandbox" })
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        match *self {}
    }
}

/// Replaces the workspace of a running sandbox.
pub fn swap_given(_holder: &Holder, process: &Process, _workspace: &Path) -> Result<()> {
    match *process {}
}

/// Returns whether a directory is the workspace of a running sandbox.
pub fn settle_swap_given(_holder: &Holder, process: &Process, _workspace: &Path) -> Result<bool> {
    match *process {}
}

/// What comes of stopping a sandbox; containers are stopped by their daemon.
pub mod freeze {
    pub use crate::resources::frozen::{Frozen, Way};
}

/// What a sandbox looks like from inside.
pub mod launch {
    pub use crate::sandbox::layout::{SOCKETS, WORKSPACE};
}

/// Where mounts are made and namespaces begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// The machine itself.
    Machine,
}

impl Holder {
    /// Another one there is not.
    pub fn find_or_start(_directory: &Path) -> Result<Self> {
        Err(HostError::NeedsLinux { what: "a namespace to mount in" })
    }

    /// Nothing has to end.
    pub fn end(&self) {}
}

/// What directories take on the disk.
pub mod disk_usage {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use super::Holder;

    /// Least bytes that a file or directory counts for.
    pub const ENTRY_MIN: u64 = 4096;

    /// Where looking ends; everything is looked at here.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Bounds {
        /// After so long.
        pub time: std::time::Duration,
        /// When more bytes than this were found.
        pub bytes: u64,
    }

    /// What files take.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Usage {
        /// Bytes on disk, for each file and directory [`ENTRY_MIN`] at least.
        pub bytes: u64,
        /// Files, directories and all else.
        pub files: u64,
        /// True if the walk ended at a bound: there is at least this much.
        pub at_least: bool,
    }

    /// The same as [`measure`].
    pub fn measure_within(holder: &Holder, path: &Path, _: Bounds) -> Usage {
        measure(holder, path)
    }

    /// Everything below a directory that can be looked at; no symlink is followed.
    pub fn measure(_: &Holder, path: &Path) -> Usage {
        let (mut usage, mut open) = (Usage::default(), vec![path.to_owned()]);
        while let Some(path) = open.pop() {
            let Ok(entries) = std::fs::read_dir(path) else { continue };
            for entry in entries.flatten() {
                let Ok(found) = entry.metadata() else { continue };
                usage.files += 1;
                usage.bytes += (found.blocks() * 512).max(ENTRY_MIN);
                if found.is_dir() {
                    open.push(entry.path());
                }
            }
        }
        usage
    }
}

/// The network of a sandbox that may reach out.
pub(crate) mod network {
    use crate::error::{HostError, Result};
    use crate::network::egress::Egress;

    /// Why sandboxes cannot reach out.
    pub fn lacks() -> Option<String> {
        Some(needs_linux().to_string())
    }

    /// Gives a sandbox its network.
    pub fn connect(_pid: i32, _egress: &Egress) -> Result<()> {
        Err(needs_linux())
    }

    fn needs_linux() -> HostError {
        HostError::NeedsLinux { what: "the fence around a sandbox that may reach out" }
    }
}

/// Who uses the workspace of a sandbox.
pub mod workspace_users {
    use std::time::Duration;

    use super::Holder;
    use super::Process;
    use crate::error::Result;
    pub use crate::sandbox::workspace_user::{User, Users, Why};

    /// The processes that use it.
    pub fn users(_holder: &Holder, process: &Process) -> Result<Vec<User>> {
        match *process {}
    }

    /// How many bytes files without a name take.
    pub fn deleted(_holder: &Holder, process: &Process) -> Result<u64> {
        match *process {}
    }

    /// Ends them.
    pub fn end_users(
        _holder: &Holder,
        process: &Process,
        _grace: Duration,
        _whose: Users,
    ) -> Result<Vec<User>> {
        match *process {}
    }
}

/// How much a directory may hold.
pub mod quota {
    use std::path::Path;

    use crate::error::{HostError, Result};

    /// Limits what a directory holds.
    pub fn limit(directory: &Path, _bytes: u64) -> Result<()> {
        let reason = "only Linux has quotas of directories".to_owned();
        Err(HostError::NoQuota { directory: directory.to_owned(), reason })
    }

    /// What it holds by its quota; it has none.
    pub fn used(_directory: &Path) -> Result<Option<super::disk_usage::Usage>> {
        Ok(None)
    }

    /// Lifts its quota; it has none.
    pub fn release(_directory: &Path) -> Result<()> {
        Ok(())
    }
}

/// Overlays, of which there are none.
pub mod overlay {
    use std::os::fd::{AsFd as _, BorrowedFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chmodat, openat, statat, unlinkat};
    use rustix::io::Errno;

    use super::Holder;
    use crate::error::{Doing as _, HostError};

    type Result<T, E = HostError> = std::result::Result<T, E>;

    /// Says that there are none.
    pub fn probe(_holder: &Holder, directory: &Path) -> Result<()> {
        let reason = "only Linux has them".to_owned();
        Err(HostError::NoOverlay { directory: directory.to_owned(), reason })
    }

    /// Nothing is mounted anywhere.
    pub fn mounted(_holder: &Holder, _below: &Path) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    /// Nothing is mounted anywhere.
    pub fn unmount(_holder: &Holder, _at: &Path) -> Result<bool> {
        Ok(false)
    }

    /// Removes a directory, or whatever is there, and all below. It never follows a symlink. What is not there is gone.
    pub fn remove_tree(_holder: &Holder, path: &Path) -> Result<()> {
        let removed = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = rustix::fs::open(parent, DIRECTORY, Mode::empty());
                parent.and_then(|parent| remove(parent.as_fd(), name.as_bytes()))
            }
            _ => Err(Errno::INVAL),
        };
        match removed {
            Err(Errno::NOENT) => Ok(()),
            removed => removed.doing(format!("remove {}", path.display())),
        }
    }

    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let mode = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
        if FileType::from_raw_mode(mode) != FileType::Directory {
            return unlinkat(parent, name, AtFlags::empty());
        }
        // Whoever worked there may have left directories that keep even their owner out.
        if mode & 0o700 != 0o700 {
            chmodat(parent, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let directory = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        // All of them before one goes: what a listing shows while it changes is anybody's guess.
        let entries: Vec<_> = Dir::read_from(&directory)?.collect::<Result<_, _>>()?;
        for entry in entries {
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                remove(directory.as_fd(), name)?;
            }
        }
        unlinkat(parent, name, AtFlags::REMOVEDIR)
    }
}
