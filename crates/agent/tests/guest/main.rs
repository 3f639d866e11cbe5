//! The agent as the server sees it: a real process, a real socket, real commands, in a sandbox and without.
//!
//! Sandboxes are started by this program again, so it has a `main` of its own.

mod given;
mod network;
mod plain;
mod sandboxed;
mod server;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// Functions as tests of the same names.
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
    let trials = [plain::trials(), given::trials(), network::trials(), sandboxed::trials()]
        .into_iter()
        .flatten()
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
