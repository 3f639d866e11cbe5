//! Sandboxes as they are launched: real processes in real namespaces.
//!
//! This program is started again as helper server and as guest, so it has a `main` of its own.

mod bounds;
mod dedicated_uids;
mod egress;
mod frozen;
mod guest;
mod hidden;
mod holders;
mod interrupted;
mod launcher;
mod limits;
mod overlays;
mod quota;
mod swapped;
mod template;
mod user_namespace;
mod views;
mod warm;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// UID of an ordinary user without any files.
const ORDINARY_UID: u32 = 61_235;

/// Converts functions to tests with the same names.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        vec![$(libtest_mimic::Trial::test(stringify!($name), || {
            $name();
            Ok(())
        })),*]
    };
}
pub(crate) use trials;

fn main() -> ExitCode {
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    if std::env::args().next().as_deref() == Some("workspace-agent") {
        return guest::run();
    }
    if let Some(code) = launcher::run() {
        return code;
    }
    if let Some(code) = egress::run() {
        return code;
    }
    if let Some(code) = dedicated_uids::run() {
        return code;
    }
    if let Some(code) = overlays::run() {
        return code;
    }
    if let Some(code) = views::run() {
        return code;
    }
    let trials = if views::wanted() { views::trials() } else { all() };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn all() -> Vec<Trial> {
    let mut trials = interrupted::trials();
    trials.extend(bounds::trials());
    trials.extend(egress::trials());
    trials.extend(frozen::trials());
    trials.extend(hidden::trials());
    trials.extend(holders::trials());
    trials.extend(limits::trials());
    trials.extend(overlays::trials());
    trials.extend(dedicated_uids::trials());
    trials.extend(quota::trials());
    trials.extend(swapped::trials());
    trials.extend(template::trials());
    trials.extend(user_namespace::trials());
    trials.extend(views::trials());
    trials.extend(warm::trials());
    if rustix::process::geteuid().is_root() {
        trials.push(Trial::test("all_tests_as_an_ordinary_user", as_ordinary_user));
        if views::possible() {
            trials.push(Trial::test("views_as_an_ordinary_user", views_as_ordinary_user));
        }
    }
    trials
}

/// Runs all tests as an unprivileged user with a common limit of open files.
fn as_ordinary_user() -> Result<(), Failed> {
    let mut command = Command::new("prlimit");
    command.args(["--nofile=1024:8192", "setpriv"]);
    with_ordinary_rights(command)
}

/// Runs the tests of views as an unprivileged user, where everybody may open `/dev/fuse`, as is common.
fn views_as_ordinary_user() -> Result<(), Failed> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", views::OPEN_DEVICE, "setpriv"]).env(views::WANTED, "1");
    with_ordinary_rights(command)
}

/// Runs this program with `setpriv`, which must be the last word of `command`.
fn with_ordinary_rights(mut command: Command) -> Result<(), Failed> {
    let home = tempfile::tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777))?;
    let tests = home.path().join("tests");
    std::fs::copy(std::env::current_exe()?, &tests)?;
    let id = ORDINARY_UID.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(tests);
    let output = command.env("TMPDIR", home.path()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Failed::from(format!("{out}\n{err}")))
}
