//! Tests of the sandbox service: the same tests on every runtime, as root and, on the embedded one, as an
//! ordinary user (`crates/test-support/as-ordinary-user.sh`).
//!
//! Helpers: `home` (a server directory), `kind` (the runtimes), `fake_runtime`, `failing_runtime` and
//! `scripted_agent` (runtimes and guest agents with the behaviour that a test needs), `docker` (the Docker daemon),
//! `registry` (an image registry), `attempts` (attempts to escape, which run inside).

mod attempts;
mod builds;
mod cancelled;
mod commands;
mod dedicated_uids;
mod descriptors;
mod docker;
mod docker_only;
mod docker_port;
mod egress;
mod escape;
mod failing_runtime;
mod fair_shares;
mod fake_runtime;
mod files;
mod frozen;
mod full_disk;
mod full_disk_writes;
mod home;
mod hung_agent;
mod idle_release;
mod invented_commands;
mod kind;
mod life;
mod limits;
mod measurements;
mod oci_only;
mod outside_writers;
mod pause_kills;
mod pause_races;
mod pauses;
mod pool;
mod quota;
mod races;
mod registry;
mod remote;
mod restart;
mod roots;
mod scripted_agent;
mod slow_freeze;
mod snapshots;
mod terminals;
mod traces;
mod transfer_memory;
mod unresolved_restore;
mod workspace_hooks;
mod workspace_swap;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    // This program is started again inside a sandbox to attempt an escape.
    if let Some(code) = attempts::entry() {
        return code;
    }
    // This program is started again as the helper that launches sandboxes.
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    // This program is started again in a network namespace of its own.
    if let Some(code) = egress::run() {
        return code;
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(life::trials());
    trials.extend(commands::trials());
    trials.extend(terminals::trials());
    trials.extend(restart::trials());
    trials.extend(limits::trials());
    trials.extend(measurements::trials());
    trials.extend(files::trials());
    trials.extend(descriptors::trials());
    trials.extend(transfer_memory::trials());
    trials.extend(frozen::trials());
    trials.extend(hung_agent::trials());
    trials.extend(races::trials());
    trials.extend(workspace_swap::trials());
    trials.extend(snapshots::trials());
    trials.extend(roots::trials());
    trials.extend(builds::trials());
    trials.extend(full_disk::trials());
    trials.extend(full_disk_writes::trials());
    trials.extend(cancelled::trials());
    trials.extend(escape::trials());
    trials.extend(failing_runtime::trials());
    trials.extend(egress::trials());
    trials.extend(docker_only::trials());
    trials.extend(docker_port::trials());
    trials.extend(oci_only::trials());
    trials.extend(remote::trials());
    trials.extend(pool::trials());
    trials.extend(idle_release::trials());
    trials.extend(quota::trials());
    trials.extend(dedicated_uids::trials());
    trials.extend(invented_commands::trials());
    trials.extend(slow_freeze::trials());
    trials.extend(fair_shares::trials());
    trials.extend(unresolved_restore::trials());
    trials.extend(outside_writers::trials());
    trials.extend(workspace_hooks::trials());
    trials.extend(pauses::trials());
    trials.extend(pause_kills::trials());
    trials.extend(pause_races::trials());
    trials.extend(traces::trials());
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    docker::end();
    conclusion.exit_code()
}

/// Makes tests from functions of a [`home::TestHome`]: one for each function and runtime, with a home of its own.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {{
        let mut trials = Vec::new();
        for kind in crate::kind::RuntimeKind::available() {
            $(if kind.runs(stringify!($name)) {
                let name = format!("{}::{}", kind.name(), stringify!($name));
                trials.push(libtest_mimic::Trial::test(name, move || {
                    crate::home::run(kind, |home| Box::pin($name(home)));
                    Ok(())
                }));
            })*
        }
        trials
    }};
}
use trials;
