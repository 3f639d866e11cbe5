//! Workspaces of all providers, with the same tests.
//!
//! Mounts of an ordinary user are visible only in the namespaces of the namespace holder, so this program is
//! started again there to read a workspace. Therefore it has its own `main`.

mod contract;
mod fixture;
mod followers;
mod forged;
mod full;
mod idmapped;
mod image;
mod killed;
mod large;
mod layers;
mod listing;
mod operations;
mod outside;
mod random;
mod roots;
mod tools;

use std::process::ExitCode;

use libtest_mimic::Arguments;

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
        outside::trials,
        followers::trials,
        forged::trials,
        tools::trials,
        full::trials,
        large::trials,
        idmapped::trials,
        roots::trials,
    ] {
        trials.extend(more());
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
