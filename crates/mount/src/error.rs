//! Errors of mounting, unmounting and serving, with hints for users.

use std::io;
use std::path::PathBuf;

use workspace_state::StoreError;

/// An error of mounting, serving or unmounting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The mountpoint cannot be used.
    #[error("cannot mount on {path}: {source}")]
    Mountpoint {
        /// Mountpoint.
        path: PathBuf,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The mountpoint is not a directory.
    #[error("cannot mount on {path}: not a directory")]
    NotADirectory {
        /// Mountpoint.
        path: PathBuf,
    },
    /// The mountpoint is not empty.
    #[error("cannot mount on {path}: the directory is not empty")]
    NotEmpty {
        /// Mountpoint.
        path: PathBuf,
    },
    /// The mountpoint has a lazy mount that responds.
    #[error("{path} already has a lazy mount of store {store}")]
    AlreadyMounted {
        /// Mountpoint.
        path: PathBuf,
        /// Store that the mount serves.
        store: PathBuf,
    },
    /// The kernel or the container has no FUSE.
    #[error("/dev/fuse does not exist")]
    NoDevice,
    /// The process has no permission to open `/dev/fuse`.
    #[error("no permission to open /dev/fuse")]
    DeviceDenied,
    /// The process may not mount, and `fusermount3`, which mounts for unprivileged users, is not installed.
    #[error("no permission to mount, and fusermount3 is not installed")]
    NoPrivilege,
    /// `fusermount3`, the set-user-ID program that mounts for unprivileged users, failed.
    #[error("{program} failed: {message}")]
    Fusermount {
        /// Path of the program.
        program: PathBuf,
        /// Standard error of the program.
        message: String,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// Attempted action, as a verb.
        action: &'static str,
        /// Error from the operating system.
        source: io::Error,
    },
    /// The directory has no lazy mount.
    #[error("there is no lazy mount on {path}")]
    NotMounted {
        /// Mountpoint.
        path: PathBuf,
    },
    /// The mount is in use.
    #[error("{path} is in use")]
    Busy {
        /// Mountpoint.
        path: PathBuf,
    },
    /// Lazy mounts need Linux.
    #[error("lazy mounts need Linux")]
    NeedsLinux,
    /// The daemon process reported an error.
    #[error("{message}")]
    Daemon {
        /// Message of the daemon.
        message: String,
        /// Hint of the daemon.
        hint: Option<String>,
    },
}

impl MountError {
    pub(crate) fn io(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { action, source: source.into() }
    }

    /// Returns a hint for the user on how to solve the problem.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDevice => {
                "load the kernel module with `modprobe fuse`; in a container add `--device /dev/fuse`"
            }
            Self::DeviceDenied => {
                "run as root, or allow all users to open it: `chmod 666 /dev/fuse`; in a container, its device \
                 rules may deny access too"
            }
            Self::NoPrivilege => {
                "install the package fuse3, run as root, or run in a user namespace of your own \
                 (`unshare --user --map-root-user --mount`)"
            }
            Self::Fusermount { message, .. } => return fusermount_hint(message).map(str::to_owned),
            Self::NotADirectory { .. } | Self::NotEmpty { .. } => "use an empty directory",
            Self::Mountpoint { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "create the directory first"
            }
            Self::AlreadyMounted { .. } => "use it, or unmount it first",
            Self::NotMounted { .. } => "use the directory that you passed to `workspace mount`",
            Self::Busy { .. } => {
                "close the files that are open below it (`fuser -vm DIR` lists the processes), or detach it \
                 (`workspace umount --lazy`)"
            }
            Self::NeedsLinux => "write the files instead: `workspace checkout SNAPSHOT DIR`",
            Self::Daemon { hint, .. } => return hint.clone(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Returns the hint for an error message of `fusermount3`.
fn fusermount_hint(message: &str) -> Option<&'static str> {
    if message.contains("user_allow_other") {
        Some("add the line `user_allow_other` to /etc/fuse.conf, or mount without access for other users")
    } else if message.contains("Operation not permitted") || message.contains("must be root") {
        Some(
            "fusermount3 must belong to root and have the set-user-id bit, which has no effect in a \
              container with `no_new_privs` or in a user namespace",
        )
    } else if message.contains("no write access") || message.contains("not owned") {
        Some("mount on a directory that you own and may write to")
    } else if message.contains("No such device") || message.contains("device not found") {
        Some("load the kernel module with `modprobe fuse`")
    } else {
        None
    }
}
