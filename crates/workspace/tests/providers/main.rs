//! Workspaces by every provider, held to the same tests, as whoever runs them and as an ordinary user.
//!
//! What is mounted for an ordinary user is seen only in the holder's namespaces, so whatever looks into a workspace is
//! this program again, started there; so it has a `main` of its own.

mod contract;
mod forged;
mod full;
mod image;
mod killed;
mod large;
mod layers;
mod listing;
mod operations;
mod random;
mod shown;
mod tools;
mod world;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// An ordinary user's id, of whom nothing on the machine is.
const ORDINARY: u32 = 61_236;

/// Everybody may open `/dev/fuse`, as on most machines.
const OPEN_FUSE: &str = "mount -t tmpfs tmpfs /mnt && mknod /mnt/fuse c 10 229 && chmod 666 /mnt/fuse \
                         && mount --bind /mnt/fuse /dev/fuse && exec \"$0\" \"$@\"";

fn main() -> ExitCode {
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    if let Some(code) =
        listing::entry().or_else(world::view_entry).or_else(random::entry).or_else(killed::entry)
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
        shown::trials,
    ] {
        trials.extend(more());
    }
    if rustix::process::geteuid().is_root() {
        trials.push(Trial::test("all_of_it_as_an_ordinary_user", as_ordinary_user));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The same tests as somebody without rights.
fn as_ordinary_user() -> Result<(), Failed> {
    let home = tempfile::tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777))?;
    let tests = home.path().join("tests");
    std::fs::copy(std::env::current_exe()?, &tests)?;
    let id = ORDINARY.to_string();
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
