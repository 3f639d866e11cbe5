//! Tests of workspaces. Most of them run with every provider, that is, with every method of making the directory of a
//! workspace: overlay (the kernel's overlay file system), clone (reflinked files) and copy.
//!
//! Mounts of an ordinary user are visible only in the namespaces of the *namespace holder*, a process that the tests
//! start. This program starts itself again there, with the name of a subcommand as an argument, to read a workspace or
//! to change files in it. Therefore it has its own `main`, and `libtest-mimic` runs the tests, which it calls trials.

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
    for trials_of_module in [
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
        trials.extend(trials_of_module());
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
