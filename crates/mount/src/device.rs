//! Mounting: with `mount(2)` if this is permitted (as root, or as root of a user namespace), or else with the
//! set-user-id program `fusermount3`. If neither works, the error says what is missing.

use std::ffi::{CString, OsString};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::error::MountError;
use crate::inode::Owner;
use crate::mountpoint::{FILESYSTEM_TYPE, escape_option};
use crate::open_files;

/// Device over which the kernel sends requests to FUSE servers.
const FUSE_DEVICE: &str = "/dev/fuse";
/// Names of `fusermount`, the set-user-ID program that mounts for unprivileged users.
const FUSERMOUNT_NAMES: [&str; 2] = ["fusermount3", "fusermount"];
/// Directories that are searched for `fusermount` after `PATH`.
const FUSERMOUNT_DIRS: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"];

/// Parameters of a mount.
pub(crate) struct MountRequest<'a> {
    pub(crate) store: &'a Path,
    pub(crate) mountpoint: &'a Path,
    /// True to allow access for other users.
    pub(crate) allow_other: bool,
}

impl MountRequest<'_> {
    /// Mounts the file system. Returns the open FUSE device, over which the kernel sends requests.
    pub(crate) fn mount(&self) -> Result<OwnedFd, MountError> {
        // Without access to the device, `fusermount` fails too: it opens the device with the permissions of the
        // caller.
        let device = open_device().map_err(|errno| match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => MountError::NoDevice,
            Errno::ACCESS | Errno::PERM => MountError::DeviceDenied,
            _ => MountError::io("open /dev/fuse", errno),
        })?;
        match self.mount_directly(&device) {
            Ok(()) => Ok(device),
            Err(Errno::PERM | Errno::ACCESS) => {
                self.mount_by_fusermount(&find_fusermount().ok_or(MountError::NoPrivilege)?)
            }
            Err(errno) => Err(MountError::io("mount", errno)),
        }
    }

    fn mount_directly(&self, device: &OwnedFd) -> Result<(), Errno> {
        let owner = Owner::of_process();
        let mut options = format!(
            "fd={},rootmode=40755,user_id={},group_id={},default_permissions",
            device.as_raw_fd(),
            owner.user,
            owner.group
        );
        if self.allow_other {
            options.push_str(",allow_other");
        }
        let options = CString::new(options).map_err(|_| Errno::INVAL)?;
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(self.store, self.mountpoint, FILESYSTEM_TYPE, flags, options.as_c_str())
    }

    fn mount_by_fusermount(&self, program: &Path) -> Result<OwnedFd, MountError> {
        let failed = |error| MountError::io("run fusermount3", error);
        let (our_end, child_end) = UnixStream::pair().map_err(failed)?;
        // This process has raised its limit of open files, which `fusermount3` must not inherit.
        let child = open_files::with_original_limit(&mut Command::new(program))
            .arg("-o")
            .arg(self.fusermount_options())
            .arg("--")
            .arg(self.mountpoint)
            // Number of the socket over which `fusermount` sends the file descriptor: its standard input.
            .env("_FUSE_COMMFD", "0")
            .stdin(OwnedFd::from(child_end))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let received = receive_descriptor(&our_end);
        let output = child.wait_with_output().map_err(failed)?;
        match received {
            Ok(Some(device)) if output.status.success() => Ok(device),
            Err(errno) => Err(MountError::io("receive the device from fusermount3", errno)),
            Ok(_) => Err(MountError::Fusermount {
                program: program.to_owned(),
                // It contains the path of the mountpoint, which need not be UTF-8.
                message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
        }
    }

    fn fusermount_options(&self) -> OsString {
        let mut options = OsString::from("ro,nosuid,nodev,default_permissions,subtype=workspace,fsname=");
        options.push(escape_option(self.store));
        if self.allow_other {
            options.push(",allow_other");
        }
        options
    }
}

fn open_device() -> Result<OwnedFd, Errno> {
    rustix::fs::open(FUSE_DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Returns true if the FUSE device can be opened again, for one file descriptor per thread.
pub(crate) fn can_open_device() -> bool {
    open_device().is_ok()
}

/// Returns the path of `fusermount`; `None` if it is not installed.
pub(crate) fn find_fusermount() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(FUSERMOUNT_DIRS.map(PathBuf::from))
        .filter(|directory| directory.is_absolute())
        .collect();
    let candidates = FUSERMOUNT_NAMES
        .iter()
        .flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// Receives a file descriptor; `None` if the peer closed the socket without sending one.
fn receive_descriptor(socket: &UnixStream) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut buffers = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn commas_in_fusermount_options_are_escaped() {
        let request =
            MountRequest { store: Path::new("/a,b"), mountpoint: Path::new("/m"), allow_other: true };
        let options = request.fusermount_options();
        assert!(options.as_bytes().ends_with(br"fsname=/a\,b,allow_other"), "{options:?}");
    }

    #[test]
    fn messages_of_fusermount_that_are_not_utf8_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("fusermount3");
        // Another process writes the script: if this one had it open for writing, a child of another test could
        // inherit the descriptor, and the script could not be executed.
        let script = r#"printf '#!/bin/sh\nprintf "no write access to mountpoint /m\\377\\n" >&2\nexit 1\n' > "$0"
            chmod 700 "$0""#;
        let written = Command::new("sh").args(["-c", script]).arg(&program).status().unwrap();
        assert!(written.success());
        let request =
            MountRequest { store: Path::new("/store"), mountpoint: Path::new("/m"), allow_other: false };
        match request.mount_by_fusermount(&program).unwrap_err() {
            MountError::Fusermount { message, .. } => {
                assert_eq!(message, "no write access to mountpoint /m\u{fffd}");
            }
            error => panic!("{error}"),
        }
    }
}
