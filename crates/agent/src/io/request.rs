//! Serving one request: a blocking task, or for watches and TCP connections an asynchronous one.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use workspace_agent_protocol::v1::io_reply::Result as Reply;
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::{IoFailureKind, IoReply};

use super::channel::{ReceivedFrames, RequestHandle};
use super::failure::{Failure, NO_PATH, Result};
use super::lane::Requests;
use super::{batch, list, ports, read, tree, watch, write};

/// Serves a request to its end. `timeout` is the maximum time until the reply of a request that transfers no content.
pub(crate) async fn serve(
    operation: Option<Operation>,
    handle: RequestHandle,
    frames: ReceivedFrames,
    requests: &Arc<Requests>,
    timeout: Duration,
) {
    match operation {
        Some(Operation::Stat(request)) => {
            call(handle, timeout, move |_| Ok(Reply::Entry(read::stat(&request.path, request.no_follow)?)))
                .await;
        }
        Some(Operation::List(request)) => {
            call(handle, timeout, move |handle| Ok(Reply::Listing(list::list(handle, &request)?))).await;
        }
        Some(Operation::Read(request)) => {
            transfer(handle, frames, move |handle, _| read::read(handle, &request)).await;
        }
        Some(Operation::Write(request)) if request.content.is_some() => {
            call(handle, timeout, move |_| Ok(Reply::Entry(write::write_all(request)?))).await;
        }
        Some(Operation::Write(request)) => {
            let requests = requests.clone();
            transfer(handle, frames, move |handle, frames| {
                let file = write::receive(handle, frames, request)?;
                requests.keep_pending(handle.id, file)?;
                handle.block_on(handle.end())
            })
            .await;
        }
        // The second half of a large write: replaces the old file by the one that `WriteFile` with the id `write` has
        // received.
        Some(Operation::Publish(request)) => match requests.take_pending(request.write) {
            Some(file) => call(handle, timeout, move |_| Ok(Reply::Entry(file.publish()?))).await,
            None => {
                let message = "the written file is gone: its transfer was cancelled";
                handle.fail(Failure::invalid(NO_PATH, message)).await;
            }
        },
        Some(Operation::Batch(request)) => {
            call(handle, timeout, move |handle| Ok(Reply::Batch(batch::run(handle, request)))).await;
        }
        Some(Operation::ReadTree(request)) => {
            transfer(handle, frames, move |handle, _| tree::read(handle, &request.path)).await;
        }
        Some(Operation::WriteTree(request)) => {
            transfer(handle, frames, move |handle, frames| tree::write(handle, frames, &request)).await;
        }
        Some(Operation::Watch(request)) => {
            // The server sends nothing on the channel of a watch, so `receive` returns only when the watch is
            // cancelled. It may wait for a change for days.
            let mut frames = frames;
            let watched = tokio::select! {
                watched = watch::watch(&handle, &request) => watched,
                _ = frames.receive() => Err(Failure::cancelled()),
            };
            if let Err(failure) = watched {
                handle.fail(failure).await;
            }
        }
        Some(Operation::ListPorts(_)) => {
            call(handle, timeout, move |_| Ok(Reply::Ports(ports::list()?))).await;
        }
        Some(Operation::OpenPort(request)) => ports::connect(handle, frames, request.port).await,
        // Closes all files, before the workspace is replaced.
        Some(Operation::Release(_)) => {
            requests.cancel_others(handle.id);
            match tokio::time::timeout(timeout, requests.wait_for_others()).await {
                // An error means that the connection of the request, its lane, is closed.
                Ok(()) => drop(handle.reply(IoReply::default()).await),
                Err(_) => handle.fail(Failure::timed_out()).await,
            }
        }
        None => {
            let message = "the guest agent of this sandbox is too old for the request; fork the sandbox, and use the fork";
            handle.fail(Failure::new(IoFailureKind::Unsupported, NO_PATH, message)).await;
        }
    }
}

/// Runs a request that has a reply and transfers no content. After the timeout the server gets a failure, and the
/// handle of the request is cancelled. The thread goes on until `work` ends. Lists and batches check the handle between
/// their steps, and end early; requests that ignore the handle, such as `Stat` and `Write`, run to their end.
async fn call(
    handle: RequestHandle,
    timeout: Duration,
    work: impl FnOnce(&RequestHandle) -> Result<Reply> + Send + 'static,
) {
    let handle = Arc::new(handle);
    let task = spawn_blocking({
        let handle = handle.clone();
        move || work(&handle)
    });
    let result = match tokio::time::timeout(timeout, task).await {
        Ok(Ok(result)) => result,
        // Not with the profile `agent`, where a panic ends the worker.
        Ok(Err(_)) => Err(Failure::new(IoFailureKind::Other, NO_PATH, "the request panicked")),
        Err(_) => Err(Failure::timed_out()),
    };
    match result {
        // An error means that the connection of the request, its lane, is closed.
        Ok(result) => drop(handle.reply(IoReply { result: Some(result), ..IoReply::default() }).await),
        Err(failure) => {
            handle.cancel();
            handle.fail(failure).await;
        }
    }
}

/// Runs a request that replies by itself and transfers content on its channel. The server cancels it if its client
/// leaves or stalls.
async fn transfer(
    handle: RequestHandle,
    mut frames: ReceivedFrames,
    work: impl FnOnce(&RequestHandle, &mut ReceivedFrames) -> Result<()> + Send + 'static,
) {
    let task = spawn_blocking(move || {
        if let Err(failure) = work(&handle, &mut frames) {
            handle.block_on(handle.fail(failure));
        }
    });
    // An error is a panic, which ends the worker (the profile `agent` aborts), and with it the lanes.
    drop(task.await);
}
