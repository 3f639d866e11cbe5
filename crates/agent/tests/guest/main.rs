//! Tests of the agent from the view of the server: a real process, a real socket, real commands, with and
//! without a sandbox.
//!
//! Sandboxes are started by executing this program again, so it has its own `main`. The modules `server` (a test server
//! for one guest) and `tracer` (kills an agent before a chosen system call, by ptrace) are helpers without tests.

mod io;
mod killed_writes;
mod network;
mod plain;
mod sandboxed;
mod server;
mod start_parameters;
mod supervisors;
mod tracer;

use std::process::ExitCode;

use libtest_mimic::Arguments;

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

/// Converts functions to tests with the same names, which only root can run.
macro_rules! trials_as_root {
    ($reason:literal: $($name:ident),* $(,)?) => {
        vec![$(libtest_mimic::Trial::test(stringify!($name), || {
            if workspace_test_support::runs_as_root($reason) {
                $name();
            }
            Ok(())
        })),*]
    };
}
pub(crate) use trials_as_root;

fn main() -> ExitCode {
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    let trials = [
        plain::trials(),
        supervisors::trials(),
        io::trials(),
        killed_writes::trials(),
        start_parameters::trials(),
        network::trials(),
        sandboxed::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
