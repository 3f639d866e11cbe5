//! A server that is the superuser of a user namespace with some of the machine's ids, as in a container.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    // Whoever is in such a namespace runs the other tests.
    if !is_superuser_of_the_machine() {
        return Vec::new();
    }
    crate::trials![
        a_superuser_of_65536_ids_makes_sandboxes,
        a_superuser_of_few_ids_makes_sandboxes,
        a_superuser_of_one_id_makes_sandboxes,
    ]
}

fn is_superuser_of_the_machine() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    rustix::process::geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The first id of the namespace, outside: nobody's.
const FIRST: u32 = 1_878_000_000;

/// Tests that are run there.
const TESTS: [&str; 5] = [
    "who_cannot_give_users_says_why",
    "mounts_of_an_overlay_do_not_tell_where_it_is_on_the_machine",
    "writable_directories_in_memory_share_one_bound",
    "processes_are_limited",
    "no_namespaces_can_be_made_inside",
];

/// A process that keeps the namespaces.
struct Keeper(Child);

impl Keeper {
    fn start(ids: u32) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--user", "--mount", "--", "sh", "-c", "echo; exec sleep 600"]).stdout(Stdio::piped());
        let mut keeper = Self(command.spawn().unwrap());
        keeper.0.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", keeper.0.id()), format!("0 {FIRST} {ids}")).unwrap();
        }
        keeper
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run_tests_with(ids: u32) {
    let keeper = Keeper::start(ids);
    let home = tempfile::tempdir().unwrap();
    let tests = home.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &tests).unwrap();
    fs::set_permissions(&tests, fs::Permissions::from_mode(0o755)).unwrap();
    chown(home.path(), Some(FIRST), Some(FIRST)).unwrap();
    for test in TESTS {
        let mut command = Command::new("nsenter");
        let target = keeper.0.id().to_string();
        command.args(["--target", &target, "--user", "--mount", "--setuid", "0", "--setgid", "0", "--"]);
        command.arg(&tests).args(["--exact", test]);
        // Other tests need more than this user has; that this one ran is checked below.
        let output = command.env("TMPDIR", home.path()).env_remove("CI").output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains("1 passed"), "{test}: {out}\n{err}");
    }
}

fn a_superuser_of_65536_ids_makes_sandboxes() {
    run_tests_with(65_536);
}

fn a_superuser_of_few_ids_makes_sandboxes() {
    run_tests_with(2_000);
}

fn a_superuser_of_one_id_makes_sandboxes() {
    run_tests_with(1);
}
