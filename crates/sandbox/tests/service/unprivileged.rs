//! The same tests as an unprivileged user.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::home::agent_program;

/// Id of an unprivileged user who owns nothing on the machine.
const UNPRIVILEGED: u32 = 61_235;

pub(crate) fn trials() -> Vec<Trial> {
    // An unprivileged user has run them already.
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    vec![Trial::test("all_tests_as_an_unprivileged_user", as_unprivileged_user)]
}

fn as_unprivileged_user() -> Result<(), Failed> {
    let home = tempfile::tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777))?;
    let copy = |from: &Path, name: &str| -> std::io::Result<PathBuf> {
        let to = home.path().join(name);
        std::fs::copy(from, &to)?;
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755))?;
        Ok(to)
    };
    let tests = copy(&std::env::current_exe()?, "tests")?;
    let agent = copy(&agent_program(), "workspace-agent")?;
    let mut command = Command::new("setpriv");
    let id = UNPRIVILEGED.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(tests);
    let output = command.env("TMPDIR", home.path()).env("WORKSPACE_TEST_AGENT", agent).output()?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Failed::from(format!("{out}\n{err}")))
}
