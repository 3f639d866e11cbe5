//! Sandboxes as they are launched: real processes in real namespaces.
//!
//! This program is started again as helper server (which does work that needs a process with one thread), as guest, and
//! for tasks of single tests that need a process of their own: to be killed, or to have another user or network. So it
//! has a `main` of its own. A `run` of a module returns `None` if the process was not started for that module.

mod anchors;
mod attach_workspace;
mod dedicated_uids;
mod egress;
mod freeze;
mod guest;
mod hidden_host_paths;
mod holders;
mod interrupted;
mod kernel_limits;
mod launcher;
mod lazy_mounts;
mod limits;
mod overlays;
mod quota;
mod template;
mod user_namespace;
mod workspace_swap;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

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
    if let Some(code) = lazy_mounts::run() {
        return code;
    }
    libtest_mimic::run(&Arguments::from_args(), all()).exit_code()
}

/// Returns the tests of all modules.
fn all() -> Vec<Trial> {
    let mut trials = interrupted::trials();
    trials.extend(anchors::trials());
    trials.extend(kernel_limits::trials());
    trials.extend(egress::trials());
    trials.extend(freeze::trials());
    trials.extend(hidden_host_paths::trials());
    trials.extend(holders::trials());
    trials.extend(launcher::trials());
    trials.extend(limits::trials());
    trials.extend(overlays::trials());
    trials.extend(dedicated_uids::trials());
    trials.extend(quota::trials());
    trials.extend(workspace_swap::trials());
    trials.extend(template::trials());
    trials.extend(user_namespace::trials());
    trials.extend(lazy_mounts::trials());
    trials.extend(attach_workspace::trials());
    trials
}
