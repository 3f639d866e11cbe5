//! Commands and terminals in a sandbox, their input and their output.

pub(crate) mod command_line;
pub(crate) mod exchange;
pub(crate) mod input;
pub(crate) mod kept_output;
pub(crate) mod logs;
pub(crate) mod output;
pub(crate) mod output_limit;
pub(crate) mod remote_output;
pub(crate) mod retention;
pub(crate) mod run;
pub(crate) mod running;
pub(crate) mod start;
pub(crate) mod terminal;
pub(crate) mod trace;
pub(crate) mod tracer;
mod user;
