//! The command `workspace`: the state engine and the server's sandboxes from a shell.
//!
//! `args` is what was typed, `commands` has a module per command, each of which calls the library or, through
//! `remote`, a server, or runs a sandbox of its own (`local`), and prints through [`output::Output`]. Data goes to stdout,
//! everything else to stderr.

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
mod signals;
mod stdin;
mod text;
mod time;
mod user;

use std::process::ExitCode;

use crate::args::Args;

fn main() -> ExitCode {
    // Before any thread: what starts sandboxes is this program started again.
    if let Some(code) = workspace_host::helper_main() {
        return code;
    }
    match Args::typed() {
        Ok(args) => {
            workspace_state::set_notice_handler(|notice| text::print_stderr(&format!("warning: {notice}")));
            // What serves a view does so itself, and tells it from what other programs are to have.
            if !matches!(args.command, args::Command::ServeView(_)) {
                limits::raise_open_files();
            }
            error::exit_code(commands::run(args))
        }
        Err(usage) => {
            if usage.use_stderr() {
                commands::mark_unmerged_file(&std::env::args_os().collect::<Vec<_>>());
            }
            error::print_usage(&usage)
        }
    }
}
