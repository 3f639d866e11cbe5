//! Sandboxes as their users see them, on the embedded runtime, as the superuser and as an ordinary user.

mod commands;
mod home;
mod life;
mod ordinary;
mod pool;
mod restart;
mod terminals;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    // The launcher is this program, started again.
    if let Some(code) = workspace_host::entry() {
        return code;
    }
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(life::trials());
    trials.extend(commands::trials());
    trials.extend(terminals::trials());
    trials.extend(restart::trials());
    trials.extend(pool::trials());
    trials.extend(ordinary::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Tests that are functions of a [`home::Home`], each with one of its own.
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        vec![$(libtest_mimic::Trial::test(stringify!($name), || {
            crate::home::run(|home| Box::pin($name(home)));
            Ok(())
        })),*]
    };
}
use trials;
