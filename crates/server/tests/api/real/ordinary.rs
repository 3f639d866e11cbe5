//! Runs the tests as an ordinary user.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::test_server::{agent_program, server_program};

/// Id of an ordinary user that owns nothing on the machine.
const ORDINARY: &str = "61236";

#[test]
fn all_tests_pass_as_an_ordinary_user() {
    // An ordinary user has already run them.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let copy = |from: &Path, name: &str| -> PathBuf {
        let to = home.path().join(name);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let (server, agent) = (copy(&server_program(), "server"), copy(&agent_program(), "workspace-agent"));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", ORDINARY, "--regid", ORDINARY, "--clear-groups", "--"]).arg(tests);
    command.args([
        "real::",
        "--skip",
        "real::ordinary",
        "--skip",
        "real::postgres",
        "--skip",
        "real::container",
        "--test-threads",
        "2",
    ]);
    command
        .env("TMPDIR", home.path())
        .env("WORKSPACE_TEST_SERVER", server)
        .env("WORKSPACE_TEST_AGENT", agent);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
}
