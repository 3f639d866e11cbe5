//! Sandboxes on a server: all network access of this program.
//!
//! [`Client`] sends requests to the server at a [`ServerUrl`], and opens streams. `command` and `terminal` are sessions
//! in a sandbox; `files`, `tree_copy` and `watch` access its files by the routes for files, and `port_forward` its
//! ports. `copy` copies files by running `tar` in the sandbox (`copy_script` has the command lines), for an old guest
//! agent that does not support these routes.
//!
//! `server_url` finds the address and the key of the server; a server on this machine has its key in its data
//! directory. `connection` is a connection to the server, over TCP or with `tls`.
//!
//! Server-sent events: `sse` parses them, `event_reader` reads those of one response, and `event_source` reconnects.
//! `event_log`, `output`, `watch` and `build` are the streams of events.

pub(crate) mod archive;
mod backoff;
mod build;
mod client;
mod command;
mod connection;
pub(crate) mod copy;
pub(crate) mod copy_script;
mod event_log;
mod event_reader;
mod event_source;
pub(crate) mod files;
mod output;
mod percent;
pub(crate) mod port_forward;
mod quote;
mod request_error;
mod sandbox;
mod server_url;
mod snapshot;
mod sse;
pub(crate) mod terminal;
mod tls;
pub(crate) mod tree_copy;
mod watch;
mod websocket;

pub(crate) use build::BuildStream;
pub(crate) use client::{Client, PROBE_TIMEOUT};
pub(crate) use command::{CommandOptions, RemoteCommand};
pub(crate) use event_log::{EventFollower, LogMessage};
pub(crate) use output::OutputFollower;
pub(crate) use percent::percent_encode;
pub(crate) use quote::{quote, shell_exec_line};
pub(crate) use request_error::{ApiError, RequestError};
pub(crate) use sandbox::{NO_FILTER, check_id, find_sandbox, list_sandboxes};
pub(crate) use server_url::{ServerUrl, local_server_data_dir};
pub(crate) use snapshot::{find_snapshot, reference_path};
pub(crate) use watch::Watch;

use crate::args::Server;
use crate::error::{CommandError, Result};

/// Runs a future that uses a server, on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        CommandError::failed(format!("cannot start the network runtime: {error}"))
            .hint("the system may be out of file descriptors or processes")
    })?;
    runtime.block_on(work)
}

/// Runs requests to a server, on this thread.
pub(crate) fn with_client<T>(server: &Server, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
    let client = Client::new(ServerUrl::new(server)?);
    block_on(work(&client))
}
