//! Sandboxes on a server: everything that goes over the network.
//!
//! [`Client`] is a server at a [`Place`], one request at a time or a stream. `process` runs a command and follows what
//! it prints over lost connections, `terminal` connects this terminal with one inside, `copy` moves files.

pub(crate) mod archive;
mod client;
pub(crate) mod copy;
mod events;
pub(crate) mod follow;
mod input;
mod patience;
mod place;
mod problem;
pub(crate) mod process;
mod quote;
mod sandbox;
pub(crate) mod script;
mod stream;
pub(crate) mod terminal;
mod tls;

pub(crate) use client::Client;
pub(crate) use place::{Place, local_data};
pub(crate) use problem::{Failure, Problem};
pub(crate) use quote::{program, quote};
pub(crate) use sandbox::{check_id, find, list};

use crate::error::{CommandError, Result};

/// Runs what waits for a server, on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        CommandError::failed(format!("cannot wait for a server: {error}"))
            .hint("the system may have run out of open files or processes")
    })?;
    runtime.block_on(work)
}
