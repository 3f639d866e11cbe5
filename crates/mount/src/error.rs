//! Why a view cannot be mounted, unmounted or served, and what to do about it.

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
    /// The place for the mount cannot be used.
    #[error("cannot mount on {path}: {source}")]
    Mountpoint {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The place for the mount is not a directory.
    #[error("cannot mount on {path}: not a directory")]
    NotADirectory {
        /// Where.
        path: PathBuf,
    },
    /// A mount would hide what is there.
    #[error("cannot mount on {path}: the directory is not empty")]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// A living view is mounted there.
    #[error("{path} already shows the store {store}")]
    AlreadyMounted {
        /// Where.
        path: PathBuf,
        /// What it shows.
        store: PathBuf,
    },
    /// The kernel or the container has no FUSE.
    #[error("there is no /dev/fuse")]
    NoDevice,
    /// `/dev/fuse` may not be opened.
    #[error("no permission to open /dev/fuse")]
    DeviceDenied,
    /// Mounting needs a privilege, and no helper has it.
    #[error("no privilege to mount, and there is no fusermount3 to do it")]
    NoPrivilege,
    /// The helper refused.
    #[error("{helper} failed: {message}")]
    Helper {
        /// Which one.
        helper: PathBuf,
        /// What it said.
        message: String,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No view is mounted there.
    #[error("no view is mounted on {path}")]
    NotMounted {
        /// Where.
        path: PathBuf,
    },
    /// Someone uses the mount.
    #[error("{path} is in use")]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// Only Linux has views.
    #[error("lazy views need Linux")]
    NeedsLinux,
    /// The process that should serve the view says why it cannot.
    #[error("{message}")]
    Daemon {
        /// What it said.
        message: String,
        /// What it advised.
        hint: Option<String>,
    },
}

impl MountError {
    pub(crate) fn io(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { action, source: source.into() }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoDevice => {
                "load the kernel module with `modprobe fuse`; in a container add `--device /dev/fuse`"
            }
            Self::DeviceDenied => {
                "run as root, or let everyone open it as is usual: `chmod 666 /dev/fuse`; in a container its \
                 device rules may forbid it too"
            }
            Self::NoPrivilege => {
                "install the package fuse3, run as root, or run in a user namespace of your own \
                 (`unshare --user --map-root-user --mount`)"
            }
            Self::Helper { message, .. } => return helper_hint(message).map(str::to_owned),
            Self::NotADirectory { .. } | Self::NotEmpty { .. } => "give an empty directory",
            Self::Mountpoint { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "make the directory first"
            }
            Self::AlreadyMounted { .. } => "use it, or unmount it first",
            Self::NotMounted { .. } => "give the directory that was given to `workspace mount`",
            Self::Busy { .. } => {
                "close what is open below it (`fuser -vm DIR` lists who), or detach it (`workspace umount --lazy`)"
            }
            Self::NeedsLinux => "write the files instead: `workspace checkout SNAPSHOT DIR`",
            Self::Daemon { hint, .. } => return hint.clone(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn helper_hint(message: &str) -> Option<&'static str> {
    if message.contains("user_allow_other") {
        Some("add the line `user_allow_other` to /etc/fuse.conf, or do without other users")
    } else if message.contains("Operation not permitted") || message.contains("must be root") {
        Some(
            "fusermount3 must belong to root and have the set-user-id bit, which is void inside a container \
              with `no_new_privs` and in a user namespace",
        )
    } else if message.contains("no write access") || message.contains("not owned") {
        Some("mount on a directory that you own and may write to")
    } else if message.contains("No such device") || message.contains("device not found") {
        Some("load the kernel module with `modprobe fuse`")
    } else {
        None
    }
}
