//! Sandboxes: isolated processes around a workspace.
//!
//! A [`Service`] makes them, runs commands and terminals in them, and ends them. What must outlive the server is
//! in the catalog, in files, or with the [`Runtime`]; the service finds everything again when it starts.
//!
//! - `create`, `remove`, `leftovers`, `recover`, `watch`, `rest`: the life of a sandbox; `operation_lock`: which of them may happen at once.
//! - `door`, `port`: where guest agents come in, by socket and over a network; `identity`: by what they know the server
//!   there; `handover`: what they are given when they start; `live`: what is known of a sandbox whose guest is there.
//! - `snapshots`: what becomes of a sandbox's workspace; `disk`: how workspaces are made and how much is in them;
//!   `full_disk`: who makes room when little is left.
//! - `command`, `terminal`, `output`: what runs inside, and what it prints; `output_limit`: how much of that is kept.
//! - [`runtime`]: what runs sandboxes; [`template`]: what their root filesystems are made from; `compression`: archives on their way in.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only the runtimes of Linux need all of it"))]

mod cancellable;
mod command;
mod compression;
mod config;
mod counted;
mod create;
mod disk;
mod door;
mod error;
mod forget;
mod full_disk;
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod id;
mod identity;
mod input;
mod leftovers;
mod live;
mod logs;
mod looks;
mod operation;
mod operation_lock;
mod output;
mod output_limit;
mod owner_turns;
mod place;
mod pool;
mod port;
mod processes;
mod recover;
mod remove;
mod reserved;
mod rest;
mod retry;
pub mod runtime;
mod service;
mod settings;
mod snapshots;
mod stats;
mod stored;
mod swap;
pub mod template;
mod terminal;
mod watch;

pub use command::{CommandHandle, Run, RunRequest};
pub use compression::zstd_reader;
pub use config::{Config, NewSandbox, ResourceRequest};
pub use create::Wanted;
pub use error::{Result, SandboxError, without_host_paths};
pub use identity::{Identity, IdentityError};
pub use live::{End, Progress};
pub use logs::Logs;
pub use output::{Output, Piece, Stream};
pub use place::Place;
pub use port::{GuestPort, Reach};
pub use processes::Process;
pub use recover::Collected;
pub use remove::Kept;
pub use runtime::Runtime;
pub use service::{Scope, Service, View};
pub use settings::{Resources, Settings};
pub use snapshots::{FORKS_MAX, Fork, Forked, NewCommit, Pause, Restored, Taken};
pub use stats::Stats;
pub use terminal::{Size, TerminalRequest};
pub use workspace_workspace::{
    Choice, Committed, Kind, LazyCommand, Materialize, WorkspaceError, Workspaces,
};
