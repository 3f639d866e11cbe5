//! Sandboxes on a server: everything that goes over the network.
//!
//! [`Client`] is a server at a [`ServerUrl`], one request at a time or a stream. `process` runs a command and follows what
//! it prints over lost connections, `terminal` connects this terminal with one inside, `copy` moves files.

pub(crate) mod archive;
mod backoff;
mod client;
pub(crate) mod copy;
mod events;
mod input;
pub(crate) mod output;
pub(crate) mod process;
mod quote;
mod request_error;
mod sandbox;
pub(crate) mod script;
mod server_url;
mod stream;
pub(crate) mod terminal;
mod tls;

pub(crate) use client::Client;
pub(crate) use quote::{program, quote};
pub(crate) use request_error::{ApiError, RequestError};
pub(crate) use sandbox::{check_id, find, list};
pub(crate) use server_url::{ServerUrl, local_data};

use crate::args::Server;
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

/// Runs requests to a server, on this thread.
pub(crate) fn with_client<T>(server: &Server, work: impl AsyncFnOnce(&Client) -> Result<T>) -> Result<T> {
    let client = Client::new(ServerUrl::new(server)?);
    block_on(work(&client))
}
