//! Roles of this program when a test starts it again: serve a mount, start a daemon, or read a mount as
//! another user.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use workspace_mount::{LazyMount, MountError, MountOptions, daemon_main, spawn_daemon, unmount};

const ROLE: &str = "WORKSPACE_MOUNT_TEST_ROLE";
const STORE: &str = "WORKSPACE_MOUNT_TEST_STORE";
const MOUNTPOINT: &str = "WORKSPACE_MOUNT_TEST_MOUNTPOINT";
const FILE: &str = "WORKSPACE_MOUNT_TEST_FILE";

/// Arguments that make this program run only [`play`].
pub(crate) const ARGUMENTS: [&str; 3] = ["roles::play", "--exact", "--nocapture"];

/// Returns a command that runs this program as the daemon; [`spawn_daemon`] adds the rest.
pub(crate) fn daemon() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(ARGUMENTS).env(ROLE, "daemon");
    command
}

/// Returns a command that runs this program to start a daemon and exit.
pub(crate) fn starter(store: &Path, mountpoint: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(ARGUMENTS).env(ROLE, "starter").env(STORE, store).env(MOUNTPOINT, mountpoint);
    command
}

/// Makes `command`, which ends in this program, mount the store, print `file` of the mount and unmount it, or
/// print the error. `role` is `look`, `look-for-others` to allow other users, or `look-by-daemon` to use a
/// daemon.
pub(crate) fn look(command: &mut Command, role: &str, store: &Path, mountpoint: &Path, file: &str) {
    command.env(ROLE, role).env(STORE, store).env(MOUNTPOINT, mountpoint).env(FILE, file);
}

#[test]
fn play() {
    match std::env::var(ROLE).as_deref() {
        Ok("daemon") => {
            let words: Vec<OsString> = std::env::args_os().collect();
            daemon_main(words[words.len() - 4..].to_vec()).unwrap();
        }
        Ok("starter") => {
            spawn_daemon(daemon(), &path(STORE), &path(MOUNTPOINT), &MountOptions::default()).unwrap();
        }
        Ok("look") => tell(mount_and_read(false)),
        Ok("look-for-others") => tell(mount_and_read(true)),
        Ok("look-by-daemon") => tell(start_and_read()),
        _ => {}
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).unwrap())
}

fn tell(seen: Result<String, MountError>) {
    match seen {
        Ok(content) => println!("\nseen: {content}"),
        Err(error) => println!("\nerror: {error}\nhint: {}", error.hint().unwrap_or_default()),
    }
}

fn mount_and_read(allow_other: bool) -> Result<String, MountError> {
    let options = MountOptions { allow_other, ..MountOptions::default() };
    let mount = LazyMount::mount(path(STORE), path(MOUNTPOINT), &options)?;
    let server = std::thread::spawn(|| mount.serve());
    let content = fs::read_to_string(path(MOUNTPOINT).join(path(FILE))).unwrap();
    unmount(&path(MOUNTPOINT))?;
    server.join().unwrap()?;
    Ok(content)
}

fn start_and_read() -> Result<String, MountError> {
    spawn_daemon(daemon(), &path(STORE), &path(MOUNTPOINT), &MountOptions::default())?;
    let content = fs::read_to_string(path(MOUNTPOINT).join(path(FILE))).unwrap();
    unmount(&path(MOUNTPOINT))?;
    Ok(content)
}
