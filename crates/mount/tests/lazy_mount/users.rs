//! Mounting as an ordinary user, in a user namespace, and the errors if neither is possible.
//!
//! Each test prepares a new mount namespace, as root, and then runs this program inside as the user `nobody`;
//! nothing outside is changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use workspace_mount::{MountState, mount_state};
use workspace_state::Snapshot;

use crate::roles::{self, ARGUMENTS};
use crate::support::{Fixture, output_of, requires_root};

const NOBODY: u32 = 65534;
const AS_NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";
const IN_OWN_NAMESPACE: &str = "unshare --user --map-root-user --mount";

/// `/dev/fuse` as it is on most machines: accessible to everyone.
const OPEN_DEVICE: &str = "mount -t tmpfs -o mode=755 none /mnt && mknod -m 666 /mnt/fuse c 10 229 \
                           && mount --bind /mnt/fuse /dev/fuse";
/// `/dev/fuse` that only root may open.
const CLOSED_DEVICE: &str = "mount -t tmpfs -o mode=755 none /mnt && mknod -m 600 /mnt/fuse c 10 229 \
                             && mount --bind /mnt/fuse /dev/fuse";
const NO_DEVICE: &str = "mount -t tmpfs -o mode=755 none /dev && mknod -m 666 /dev/null c 1 3";
const NO_HELPER: &str = "for helper in /usr/bin/fusermount3 /usr/bin/fusermount /bin/fusermount3 /bin/fusermount; do \
                         if test -f $helper; then mount --bind /dev/null $helper; fi; done";
const STRICT_HELPER: &str = "if test -e /etc/fuse.conf; then mount --bind /dev/null /etc/fuse.conf; fi";

/// A store of the user `nobody`, and a copy of this program that they may run.
struct Nobody {
    fixture: Fixture,
    snapshot: Snapshot,
    program: PathBuf,
}

impl Nobody {
    fn new() -> Option<Self> {
        if !requires_root() {
            return None;
        }
        let fixture = Fixture::new();
        let snapshot = fixture.commit(|tree| tree.write("d/f", "content").unwrap());
        fs::set_permissions(fixture.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = fixture.directory.path().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        output_of(Command::new("chown").args(["-R", "65534:65534"]).arg(fixture.store.path()));
        chown(fixture.mountpoint(), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self { fixture, snapshot, program })
    }

    /// Runs `setup` as root in a new mount namespace, then reads the mount through `wrapper`.
    fn look(&self, role: &str, setup: &str, wrapper: &str) -> String {
        let script =
            format!("set -e; {setup}; exec {wrapper} {} {}", self.program.display(), ARGUMENTS.join(" "));
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        let file = format!("{}/d/f", self.snapshot.id);
        roles::look(&mut command, role, self.fixture.store.path(), &self.fixture.mountpoint(), &file);
        let output = output_of(&mut command);
        output.lines().filter(|line| is_answer(line)).collect::<Vec<_>>().join("\n")
    }
}

fn is_answer(line: &str) -> bool {
    ["seen: ", "error: ", "hint: "].iter().any(|start| line.starts_with(start))
}

#[test]
fn an_ordinary_user_mounts_through_the_helper() {
    let Some(nobody) = Nobody::new() else { return };
    for role in ["look", "look-by-daemon"] {
        assert_eq!(nobody.look(role, OPEN_DEVICE, AS_NOBODY), "seen: content", "{role}");
    }
}

#[test]
fn a_user_namespace_needs_no_helper() {
    let Some(nobody) = Nobody::new() else { return };
    let setup = format!("{OPEN_DEVICE}; {NO_HELPER}");
    assert_eq!(nobody.look("look", &setup, &format!("{AS_NOBODY} {IN_OWN_NAMESPACE}")), "seen: content");
}

#[test]
fn root_of_a_user_namespace_mounts_too() {
    let Some(nobody) = Nobody::new() else { return };
    chown(nobody.fixture.mountpoint(), Some(0), Some(0)).unwrap();
    output_of(Command::new("chown").args(["-R", "0:0"]).arg(nobody.fixture.store.path()));
    assert_eq!(nobody.look("look", NO_HELPER, IN_OWN_NAMESPACE), "seen: content");
}

#[test]
fn a_missing_helper_and_privilege_are_reported() {
    let Some(nobody) = Nobody::new() else { return };
    // In the second case the error is found by another process, which reports it.
    for role in ["look", "look-by-daemon"] {
        let said = nobody.look(role, &format!("{OPEN_DEVICE}; {NO_HELPER}"), AS_NOBODY);
        assert!(
            said.starts_with("error: no permission to mount, and fusermount3 is not installed"),
            "{role}: {said}"
        );
        assert!(said.contains("package fuse3") && said.contains("user namespace"), "{role}: {said}");
    }
}

#[test]
fn denied_access_to_the_device_gives_a_hint() {
    let Some(nobody) = Nobody::new() else { return };
    for wrapper in [AS_NOBODY.to_owned(), format!("{AS_NOBODY} {IN_OWN_NAMESPACE}")] {
        let said = nobody.look("look", CLOSED_DEVICE, &wrapper);
        assert!(said.starts_with("error: no permission to open /dev/fuse"), "{said}");
        assert!(said.contains("chmod 666 /dev/fuse"), "{said}");
    }
}

#[test]
fn a_missing_device_is_reported() {
    let Some(nobody) = Nobody::new() else { return };
    let said = nobody.look("look", NO_DEVICE, AS_NOBODY);
    assert!(said.starts_with("error: /dev/fuse does not exist"), "{said}");
    assert!(said.contains("modprobe fuse") && said.contains("--device /dev/fuse"), "{said}");
}

#[test]
fn other_users_need_the_consent_of_the_administrator() {
    let Some(nobody) = Nobody::new() else { return };
    let said = nobody.look("look-for-others", &format!("{OPEN_DEVICE}; {STRICT_HELPER}"), AS_NOBODY);
    assert!(
        said.contains("fusermount3 failed") && said.contains("hint: add the line `user_allow_other`"),
        "{said}"
    );
}

#[test]
fn a_mountpoint_of_another_user_is_refused() {
    let Some(nobody) = Nobody::new() else { return };
    chown(nobody.fixture.mountpoint(), Some(0), Some(0)).unwrap();
    let said = nobody.look("look", OPEN_DEVICE, AS_NOBODY);
    assert!(said.contains("hint: mount on a directory that you own"), "{said}");
}

#[test]
fn other_users_have_access_only_with_allow_other() {
    let Some(nobody) = Nobody::new() else { return };
    let sees = |path: &Path| {
        let list = format!("{AS_NOBODY} ls {}", path.display());
        Command::new("sh").args(["-c", &list]).output().unwrap().status.success()
    };
    for allow_other in [false, true] {
        let options = workspace_mount::MountOptions { allow_other, ..Default::default() };
        let mount = crate::support::TestMount::new(&nobody.fixture, &options);
        assert_eq!(sees(&mount.of(&nobody.snapshot)), allow_other);
        assert!(matches!(mount_state(&nobody.fixture.mountpoint()).unwrap(), MountState::Alive { .. }));
    }
}
