//! The command `workspace`: the state engine and the server's sandboxes from a shell.
//!
//! `args` parses the command line. `commands` has a module per command, which calls the library, a server (`remote`) or
//! a sandbox of this process (`local`), and prints through [`output::Output`]. `session` connects this program with a
//! command in a sandbox. Data goes to stdout, everything else to stderr.

mod args;
mod commands;
mod context;
mod error;
mod fields;
mod limits;
mod local;
mod names;
mod output;
mod progress;
mod remote;
mod screen;
mod session;
mod signals;
mod stdin;
mod text;
mod time;
mod user;

use std::process::ExitCode;

use crate::args::Args;

fn main() -> ExitCode {
    // Called before any thread is started: this program is also the helper that starts sandboxes.
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    match Args::parse_command_line() {
        Ok(args) => {
            workspace_state::set_notice_handler(|notice| text::print_stderr(&format!("warning: {notice}")));
            // The server of a lazy mount raises the limit itself, and records the former one for its children.
            if !matches!(args.command, args::Command::ServeLazyMount(_)) {
                limits::raise_open_files();
            }
            error::report_result(commands::run(args))
        }
        Err(usage) => {
            if usage.use_stderr() {
                // If git started this program as its merge driver, git must not take the file for merged.
                commands::mark_unmerged_file(&std::env::args_os().collect::<Vec<_>>());
            }
            error::print_usage(&usage)
        }
    }
}
