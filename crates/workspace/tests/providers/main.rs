//! Workspaces of all providers, with the same tests, as the current user and as an ordinary user.
//!
//! Mounts of an ordinary user are visible only in the namespaces of the namespace holder, so this program is
//! started again there to read a workspace. Therefore it has its own `main`.

mod contract;
mod fixture;
mod forged;
mod full;
mod idmapped;
mod image;
mod killed;
mod large;
mod layers;
mod listing;
mod operations;
mod random;
mod tools;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// UID of an ordinary user without any files.
const ORDINARY_UID: u32 = 61_236;

/// Makes `/dev/fuse` accessible to everyone, as on most machines.
const OPEN_FUSE: &str = "mount -t tmpfs tmpfs /mnt && mknod /mnt/fuse c 10 229 && chmod 666 /mnt/fuse \
                         && mount --bind /mnt/fuse /dev/fuse && exec \"$0\" \"$@\"";

fn main() -> ExitCode {
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    if let Some(code) =
        listing::entry().or_else(fixture::lazy_mount_entry).or_else(random::entry).or_else(killed::entry)
    {
        return code;
    }
    let mut trials = contract::trials();
    trials.extend(layers::trials());
    for more in [
        random::trials,
        killed::trials,
        forged::trials,
        tools::trials,
        full::trials,
        large::trials,
        idmapped::trials,
    ] {
        trials.extend(more());
    }
    if rustix::process::geteuid().is_root() {
        trials.push(Trial::test("all_tests_pass_as_an_ordinary_user", as_ordinary_user));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs the same tests without privileges.
fn as_ordinary_user() -> Result<(), Failed> {
    let home = tempfile::tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777))?;
    let tests = home.path().join("tests");
    std::fs::copy(std::env::current_exe()?, &tests)?;
    let id = ORDINARY_UID.to_string();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", OPEN_FUSE, "setpriv"]);
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(tests);
    let output = command.env("TMPDIR", home.path()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Failed::from(format!("{out}\n{err}")))
}
