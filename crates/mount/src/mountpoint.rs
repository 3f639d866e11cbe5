//! Mountpoints: their state, preparation and unmounting.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::device;
use crate::error::MountError;
use crate::open_files;

/// File system type of a lazy mount in `mountinfo`.
pub(crate) const FILESYSTEM_TYPE: &str = "fuse.workspace";
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// State of a mountpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountState {
    /// There is no lazy mount.
    NotMounted,
    /// A lazy mount that responds.
    Alive {
        /// Store that it serves.
        store: PathBuf,
    },
    /// A lazy mount whose process has died. Content cached by the kernel may still be readable; all other
    /// operations fail with `ENOTCONN`. Call [`unmount`] or mount again to replace it.
    Dead {
        /// Store that it served.
        store: PathBuf,
    },
}

/// Returns the state of `mountpoint`.
pub fn mount_state(mountpoint: &Path) -> Result<MountState, MountError> {
    let path = resolve(mountpoint)?;
    let Some(store) = mounts()?.into_iter().rev().find(|mount| mount.path == path).and_then(Mount::store)
    else {
        return Ok(MountState::NotMounted);
    };
    // The kernel never answers `statfs` from its cache.
    match rustix::fs::statfs(&path) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) => Ok(MountState::Dead { store }),
        // The kernel denies access to the mount of another user only while its process is alive.
        Ok(_) | Err(Errno::ACCESS) => Ok(MountState::Alive { store }),
        Err(errno) => Err(MountError::Mountpoint { path, source: errno.into() }),
    }
}

/// Unmounts, which ends the serving process. Fails while the mount is in use, unless its process has died.
pub fn unmount(mountpoint: &Path) -> Result<(), MountError> {
    match mount_state(mountpoint)? {
        MountState::NotMounted => Err(MountError::NotMounted { path: mountpoint.to_owned() }),
        MountState::Alive { .. } => unmount_path(&resolve(mountpoint)?, UnmountFlags::NOFOLLOW),
        MountState::Dead { .. } => detach(mountpoint),
    }
}

/// Unmounts lazily (`MNT_DETACH`), even while the mount is in use. Open files stay usable; the serving
/// process ends when the last one is closed.
pub fn detach(mountpoint: &Path) -> Result<(), MountError> {
    match mount_state(mountpoint)? {
        MountState::NotMounted => Err(MountError::NotMounted { path: mountpoint.to_owned() }),
        MountState::Alive { .. } | MountState::Dead { .. } => {
            unmount_path(&resolve(mountpoint)?, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
        }
    }
}

/// Checks that `mountpoint` can be mounted on, after detaching lazy mounts whose process died. Returns its canonical
/// path.
pub(crate) fn prepare(mountpoint: &Path) -> Result<PathBuf, MountError> {
    // Several dead mounts may be stacked.
    loop {
        match mount_state(mountpoint)? {
            MountState::Dead { .. } => detach(mountpoint)?,
            MountState::Alive { store } => {
                return Err(MountError::AlreadyMounted { path: mountpoint.to_owned(), store });
            }
            MountState::NotMounted => break,
        }
    }
    let path = resolve(mountpoint)?;
    let failed = |source| MountError::Mountpoint { path: path.clone(), source };
    if !fs::metadata(&path).map_err(failed)?.is_dir() {
        return Err(MountError::NotADirectory { path });
    }
    if fs::read_dir(&path).map_err(failed)?.next().is_some() {
        return Err(MountError::NotEmpty { path });
    }
    Ok(path)
}

fn unmount_path(path: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy { path: path.to_owned() }),
        Err(Errno::PERM) => unmount_by_fusermount(path, flags.contains(UnmountFlags::DETACH)),
        Err(errno) => Err(MountError::io("unmount", errno)),
    }
}

fn unmount_by_fusermount(path: &Path, is_lazy: bool) -> Result<(), MountError> {
    let program = device::find_fusermount().ok_or(MountError::NoPrivilege)?;
    let mut command = Command::new(&program);
    open_files::with_original_limit(&mut command);
    command.arg("-u");
    if is_lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(|error| MountError::io("run fusermount3", error))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        // The program reports the error of the system call only as text, which it never translates.
        false if message.contains("busy") => Err(MountError::Busy { path: path.to_owned() }),
        false => Err(MountError::Fusermount { program, message }),
    }
}

/// Returns the canonical path of a mountpoint, even if its mount is dead and cannot be accessed.
fn resolve(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let failed = |source| MountError::Mountpoint { path: mountpoint.to_owned(), source };
    match fs::canonicalize(mountpoint) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTCONN) => {
            let absolute = std::path::absolute(mountpoint).map_err(failed)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(fs::canonicalize(parent).map_err(failed)?.join(name)),
                _ => Err(failed(error)),
            }
        }
        other => other.map_err(failed),
    }
}

/// One line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    path: PathBuf,
    filesystem: String,
    source: PathBuf,
}

impl Mount {
    /// Parses `id parent major:minor root path options [tags…] - filesystem source options`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let path = unescape(fields.nth(4)?);
        fields.find(|field| *field == b"-")?;
        let filesystem = String::from_utf8(fields.next()?.to_vec()).ok()?;
        Some(Self { path, filesystem, source: unescape(fields.next()?) })
    }

    /// Returns the store of a lazy mount; `None` for other mounts.
    fn store(self) -> Option<PathBuf> {
        (self.filesystem == FILESYSTEM_TYPE).then_some(self.source)
    }
}

/// Returns the mounts in the mount namespace of this process. Of several on one path, the last one is on top.
fn mounts() -> Result<Vec<Mount>, MountError> {
    let text = fs::read(MOUNTINFO).map_err(|error| MountError::io("read /proc/self/mountinfo", error))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
}

/// Unescapes a field of `mountinfo`: spaces, tabs, newlines and backslashes are octal escapes such as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        match after.first_chunk::<3>().filter(|_| first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// Escapes commas and backslashes of a path for a mount option of `fusermount`.
pub(crate) fn escape_option(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let escaped = bytes.iter().flat_map(|byte| match byte {
        b',' | b'\\' => vec![b'\\', *byte],
        _ => vec![*byte],
    });
    OsString::from_vec(escaped.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_parsed() {
        let line =
            br"36 35 0:42 / /mnt/a\040b rw,nosuid shared:1 master:2 - fuse.workspace /s\134\054 ro,user_id=0";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.path.to_str(), Some("/mnt/a b"));
        assert_eq!(mount.store(), Some(PathBuf::from(r"/s\,")));
        let plain = Mount::parse(b"1 0 8:1 / / rw - ext4 /dev/sda1 rw").unwrap();
        assert_eq!(plain.path.to_str(), Some("/"));
        assert_eq!(plain.store(), None);
        assert_eq!(Mount::parse(b""), None);
    }

    #[test]
    fn invalid_escapes_are_kept() {
        assert_eq!(unescape(br"a\9b\"), PathBuf::from(r"a\9b\"));
        assert_eq!(escape_option(Path::new(r"/a,b\c")), OsString::from(r"/a\,b\\c"));
    }

    #[test]
    fn an_ordinary_directory_is_not_mounted() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(mount_state(directory.path()).unwrap(), MountState::NotMounted);
        assert!(matches!(unmount(directory.path()), Err(MountError::NotMounted { .. })));
        assert!(prepare(directory.path()).is_ok());
        fs::write(directory.path().join("x"), b"").unwrap();
        assert!(matches!(prepare(directory.path()), Err(MountError::NotEmpty { .. })));
        assert!(matches!(prepare(&directory.path().join("x")), Err(MountError::NotADirectory { .. })));
        let missing = prepare(&directory.path().join("y")).unwrap_err();
        assert_eq!(missing.hint().as_deref(), Some("create the directory first"));
    }
}
