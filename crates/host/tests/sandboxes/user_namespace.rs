//! A server that is root of a user namespace with some ids of the host, as in a container.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;
use workspace_test_support::skip;

/// Returns each of [`TESTS`] in namespaces with different numbers of ids.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for ids in [65_536, 2_000, 1] {
        for test in TESTS {
            trials.push(Trial::test(format!("root_of_{ids}_ids::{test}"), move || {
                run_in_namespace(ids, test);
                Ok(())
            }));
        }
    }
    trials
}

fn is_root_of_the_host() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    rustix::process::geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// First id outside the namespace that is mapped. No user has it.
const FIRST: u32 = 1_878_000_000;

/// Names of the tests that are run there.
const TESTS: [&str; 5] = [
    "the_probe_says_why_uids_are_not_available",
    "mountinfo_does_not_reveal_paths_of_the_host",
    "writable_tmpfs_directories_share_one_limit",
    "processes_are_limited",
    "namespaces_cannot_be_created_inside",
];

/// Process that keeps the namespaces alive.
struct NamespaceProcess(Child);

impl NamespaceProcess {
    fn start(ids: u32) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--user", "--mount", "--", "sh", "-c", "echo; exec sleep 600"]).stdout(Stdio::piped());
        let mut process = Self(command.spawn().unwrap());
        process.0.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", process.0.id()), format!("0 {FIRST} {ids}")).unwrap();
        }
        process
    }
}

impl Drop for NamespaceProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run_in_namespace(ids: u32, test: &str) {
    if !is_root_of_the_host() {
        skip("only root of the first user namespace can map these ids");
        return;
    }
    let process = NamespaceProcess::start(ids);
    let home = tempfile::tempdir().unwrap();
    let tests = home.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &tests).unwrap();
    fs::set_permissions(&tests, fs::Permissions::from_mode(0o755)).unwrap();
    chown(home.path(), Some(FIRST), Some(FIRST)).unwrap();
    let mut command = Command::new("nsenter");
    let target = process.0.id().to_string();
    command.args(["--target", &target, "--user", "--mount", "--setuid", "0", "--setgid", "0", "--"]);
    command.arg(&tests).args(["--exact", test]);
    // Other tests need more ids; that this one ran is checked below.
    let output = command.env("TMPDIR", home.path()).env_remove("CI").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
}
