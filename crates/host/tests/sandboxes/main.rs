//! Sandboxes as they are launched: real processes in real namespaces.
//!
//! This program is started again as helper server (which does work that needs a process with one thread) and as guest,
//! so it has a `main` of its own. `guest` and `launcher` are the helpers that do this.

mod anchors;
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
    if let Some(code) = views::run() {
        return code;
    }
    libtest_mimic::run(&Arguments::from_args(), all()).exit_code()
}

fn all() -> Vec<Trial> {
    let mut trials = interrupted::trials();
    trials.extend(anchors::trials());
    trials.extend(bounds::trials());
    trials.extend(egress::trials());
    trials.extend(frozen::trials());
    trials.extend(hidden::trials());
    trials.extend(holders::trials());
    trials.extend(launcher::trials());
    trials.extend(limits::trials());
    trials.extend(overlays::trials());
    trials.extend(dedicated_uids::trials());
    trials.extend(quota::trials());
    trials.extend(swapped::trials());
    trials.extend(template::trials());
    trials.extend(user_namespace::trials());
    trials.extend(views::trials());
    trials.extend(warm::trials());
    trials
}
