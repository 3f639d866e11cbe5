//! Replacements on systems other than Linux, limited to what the docker runtime and plain workspaces need.
//! Functions that need Linux fail with [`HostError::NeedsLinux`]; [`quota::limit`] and [`overlay::probe`] fail with the
//! error that callers take for a missing feature.

use std::path::Path;
use std::process::ExitCode;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{HostError, Result};

/// Returns `None`: there are no helpers.
pub fn helper_main() -> Option<ExitCode> {
    None
}

/// Identity of a process. It has no values: containers run in a virtual machine, so their processes are not
/// visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Process {}

impl Process {
    /// Fails with [`HostError::NeedsLinux`].
    pub fn of(_pid: Pid) -> Result<Self> {
        Err(HostError::NeedsLinux { operation: "inspecting the processes of a sandbox" })
    }

    /// Cannot be called, because no `Process` exists.
    pub fn is_running(&self) -> bool {
        match *self {}
    }
}

/// Replaces the workspace of a sandbox whose files its user owns already (see `mount/swap.rs`). Cannot be called, because
/// no `Process` exists.
pub fn swap_workspace_without_chown(
    _holder: &NamespaceHolder,
    process: &Process,
    _workspace: &Path,
) -> Result<()> {
    match *process {}
}

/// Finishes or undoes such a replacement, and returns true if it was finished (see `mount/swap.rs`). Cannot be called,
/// because no `Process` exists.
pub fn settle_workspace_swap_without_chown(
    _holder: &NamespaceHolder,
    process: &Process,
    _workspace: &Path,
) -> Result<bool> {
    match *process {}
}

/// Result types of freezing. The container daemon freezes containers.
pub mod freeze {
    pub use crate::resources::frozen::{FreezeMethod, Frozen};
}

/// Paths inside a sandbox.
pub mod launch {
    pub use crate::sandbox::layout::{SOCKETS, WORKSPACE};
}

/// Namespaces in which mounts and sandboxes are created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceHolder {
    /// No holder: the namespaces of the calling process.
    None,
}

impl NamespaceHolder {
    /// Fails with [`HostError::NeedsLinux`].
    pub fn find_or_start(_directory: &Path) -> Result<Self> {
        Err(HostError::NeedsLinux { operation: "a namespace holder" })
    }

    /// Does nothing: the namespaces of the host remain.
    pub fn kill(&self) {}
}

/// Disk usage of directories.
pub mod disk_usage {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use super::NamespaceHolder;

    /// Minimum bytes counted for a file or directory.
    pub const ENTRY_MIN: u64 = 4096;

    /// Bounds of a measurement; ignored here.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Bounds {
        /// Time limit.
        pub time: std::time::Duration,
        /// Number of bytes at which the measurement stops.
        pub bytes: u64,
    }

    /// Disk usage of a tree.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct DiskUsage {
        /// Bytes on disk, at least [`ENTRY_MIN`] for each file and directory.
        pub bytes: u64,
        /// Number of files, directories and other entries.
        pub files: u64,
        /// True if the walk stopped at a bound, so the usage may be higher.
        pub is_lower_bound: bool,
    }

    /// Measures like [`measure`]; the bounds are ignored.
    pub fn measure_within(holder: &NamespaceHolder, path: &Path, _: Bounds) -> DiskUsage {
        measure(holder, path)
    }

    /// Measures everything readable below a directory. Symlinks are not followed.
    pub fn measure(_: &NamespaceHolder, path: &Path) -> DiskUsage {
        let (mut usage, mut pending) = (DiskUsage::default(), vec![path.to_owned()]);
        while let Some(path) = pending.pop() {
            let Ok(entries) = std::fs::read_dir(path) else { continue };
            for entry in entries.flatten() {
                let Ok(found) = entry.metadata() else { continue };
                usage.files += 1;
                usage.bytes += (found.blocks() * 512).max(ENTRY_MIN);
                if found.is_dir() {
                    pending.push(entry.path());
                }
            }
        }
        usage
    }
}

/// Network of a sandbox with egress.
pub(crate) mod network {
    use crate::error::{HostError, Result};
    use crate::network::egress::Egress;

    /// Returns an error message: egress is never available.
    pub fn unavailable_reason() -> Option<String> {
        Some(needs_linux().to_string())
    }

    /// Fails with [`HostError::NeedsLinux`].
    pub fn connect(_pid: i32, _egress: &Egress) -> Result<()> {
        Err(needs_linux())
    }

    fn needs_linux() -> HostError {
        HostError::NeedsLinux { operation: "network egress of a sandbox" }
    }
}

/// Processes that use the workspace of a sandbox.
pub mod workspace_processes {
    use std::time::Duration;

    use super::NamespaceHolder;
    use super::Process;
    use crate::error::Result;
    pub use crate::sandbox::workspace_process::{ProcessScope, WorkspaceProcess, WorkspaceUse};

    /// Cannot be called, because no `Process` exists.
    pub fn list(_holder: &NamespaceHolder, process: &Process) -> Result<Vec<WorkspaceProcess>> {
        match *process {}
    }

    /// Cannot be called, because no `Process` exists.
    pub fn deleted_bytes(_holder: &NamespaceHolder, process: &Process) -> Result<u64> {
        match *process {}
    }

    /// Cannot be called, because no `Process` exists.
    pub fn terminate(
        _holder: &NamespaceHolder,
        process: &Process,
        _grace: Duration,
        _scope: ProcessScope,
    ) -> Result<Vec<WorkspaceProcess>> {
        match *process {}
    }
}

/// Quotas of directories.
pub mod quota {
    use std::path::Path;

    use crate::error::{HostError, Result};

    /// Fails with [`HostError::NoQuota`].
    pub fn limit(directory: &Path, _bytes: u64) -> Result<()> {
        let reason = "directory quotas need Linux".to_owned();
        Err(HostError::NoQuota { directory: directory.to_owned(), reason })
    }

    /// Does nothing: there is no limit that `directory` could share with `limited`.
    pub fn share(_directory: &Path, _limited: &Path) -> Result<()> {
        Ok(())
    }

    /// Returns `None`: there is no quota.
    pub fn used(_directory: &Path) -> Result<Option<super::disk_usage::DiskUsage>> {
        Ok(None)
    }

    /// Does nothing: there is no quota.
    pub fn release(_directory: &Path) -> Result<()> {
        Ok(())
    }
}

/// Overlays, which are not supported.
pub mod overlay {
    use std::os::fd::{AsFd as _, BorrowedFd};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chmodat, openat, statat, unlinkat};
    use rustix::io::Errno;

    use super::NamespaceHolder;
    use crate::error::{Context as _, HostError};

    type Result<T, E = HostError> = std::result::Result<T, E>;

    /// Fails with [`HostError::NoOverlay`].
    pub fn probe(_holder: &NamespaceHolder, directory: &Path) -> Result<()> {
        let reason = "overlays need Linux".to_owned();
        Err(HostError::NoOverlay { directory: directory.to_owned(), reason })
    }

    /// Returns no paths: nothing is mounted.
    pub fn mounted(_holder: &NamespaceHolder, _below: &Path) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    /// Returns false: nothing is mounted.
    pub fn unmount(_holder: &NamespaceHolder, _mount_point: &Path) -> Result<bool> {
        Ok(false)
    }

    /// Removes a file, or a directory with its content, if it exists. Symlinks are not followed.
    pub fn remove_tree(_holder: &NamespaceHolder, path: &Path) -> Result<()> {
        let removed = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = rustix::fs::open(parent, DIRECTORY, Mode::empty());
                parent.and_then(|parent| remove(parent.as_fd(), name.as_bytes()))
            }
            _ => Err(Errno::INVAL),
        };
        match removed {
            Err(Errno::NOENT) => Ok(()),
            removed => removed.context(format!("remove {}", path.display())),
        }
    }

    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

    fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let mode = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
        if FileType::from_raw_mode(mode) != FileType::Directory {
            return unlinkat(parent, name, AtFlags::empty());
        }
        // A program may have removed the owner's permissions.
        if mode & 0o700 != 0o700 {
            chmodat(parent, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let directory = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        // Listed before anything is removed: a listing that changes concurrently may be incomplete.
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
