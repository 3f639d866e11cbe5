//! Sandboxes as their users see them: the same tests on every runtime, as the superuser and, on the embedded one, as an
//! ordinary user.

mod attempts;
mod cancelled;
mod commands;
mod docker;
mod docker_only;
mod docker_port;
mod egress;
mod escape;
mod failing;
mod frozen;
mod full_disk;
mod home;
mod hung;
mod kind;
mod life;
mod limits;
mod made_up;
mod oci_only;
mod ordinary;
mod own_users;
mod pool;
mod quota;
mod races;
mod registry;
mod remote;
mod restart;
mod resting;
mod shares;
mod snapshots;
mod swapped;
mod terminals;
#[path = "../../../host/tests/sandboxes/test_network.rs"]
mod test_network;
mod undecided;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(code) = attempts::entry() {
        return code;
    }
    // The launcher is this program, started again.
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    if let Some(code) = egress::run() {
        return code;
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(life::trials());
    trials.extend(commands::trials());
    trials.extend(terminals::trials());
    trials.extend(restart::trials());
    trials.extend(limits::trials());
    trials.extend(frozen::trials());
    trials.extend(hung::trials());
    trials.extend(races::trials());
    trials.extend(swapped::trials());
    trials.extend(snapshots::trials());
    trials.extend(full_disk::trials());
    trials.extend(cancelled::trials());
    trials.extend(escape::trials());
    trials.extend(failing::trials());
    trials.extend(egress::trials());
    trials.extend(docker_only::trials());
    trials.extend(docker_port::trials());
    trials.extend(oci_only::trials());
    trials.extend(remote::trials());
    trials.extend(pool::trials());
    trials.extend(resting::trials());
    trials.extend(quota::trials());
    trials.extend(own_users::trials());
    trials.extend(ordinary::trials());
    trials.extend(made_up::trials());
    trials.extend(shares::trials());
    trials.extend(undecided::trials());
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    docker::end();
    conclusion.exit_code()
}

/// Tests that are functions of a [`home::Home`], each with one of its own on every runtime.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {{
        let mut trials = Vec::new();
        for kind in crate::kind::Kind::here() {
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
