//! Serving one request: a blocking task, or for watches and TCP connections an asynchronous one.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use workspace_agent_protocol::v1::io_reply::Result as Reply;
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::{IoFailureKind, IoReply};

use super::channel::{Channel, Frames};
use super::failure::{Failure, Result};
use super::lane::Requests;
use super::{batch, list, ports, read, tree, watch, write};

/// Serves a request to its end. `timeout` is the maximum time until the reply of a request without a channel.
pub(crate) async fn serve(
    operation: Option<Operation>,
    channel: Channel,
    frames: Frames,
    requests: &Arc<Requests>,
    timeout: Duration,
) {
    match operation {
        Some(Operation::Stat(request)) => {
            call(channel, timeout, move |_| Ok(Reply::Entry(read::stat(&request.path, request.no_follow)?)))
                .await;
        }
        Some(Operation::List(request)) => {
            call(channel, timeout, move |channel| Ok(Reply::Listing(list::list(channel, &request)?))).await;
        }
        Some(Operation::Read(request)) => {
            transfer(channel, frames, move |channel, _| read::read(channel, &request)).await;
        }
        Some(Operation::Write(request)) if request.content.is_some() => {
            call(channel, timeout, move |_| Ok(Reply::Entry(write::write_all(request)?))).await;
        }
        Some(Operation::Write(request)) => {
            let requests = requests.clone();
            transfer(channel, frames, move |channel, frames| {
                let file = write::receive(channel, frames, request)?;
                requests.keep_pending(channel.id, file)?;
                channel.block_on(channel.end())
            })
            .await;
        }
        Some(Operation::Publish(request)) => match requests.take_pending(request.write) {
            Some(file) => call(channel, timeout, move |_| Ok(Reply::Entry(file.publish()?))).await,
            None => channel.fail(Failure::invalid(b"", "there is no such write")).await,
        },
        Some(Operation::Batch(request)) => {
            call(channel, timeout, move |channel| Ok(Reply::Batch(batch::run(channel, request)))).await;
        }
        Some(Operation::ReadTree(request)) => {
            transfer(channel, frames, move |channel, _| tree::read(channel, &request.path)).await;
        }
        Some(Operation::WriteTree(request)) => {
            transfer(channel, frames, move |channel, frames| tree::write(channel, frames, &request)).await;
        }
        Some(Operation::Watch(request)) => {
            // The server sends nothing on the channel of a watch, which may wait for a change for days.
            let mut frames = frames;
            let watched = tokio::select! {
                watched = watch::watch(&channel, &request) => watched,
                _ = frames.receive() => Err(Failure::cancelled()),
            };
            if let Err(failure) = watched {
                channel.fail(failure).await;
            }
        }
        Some(Operation::ListPorts(_)) => {
            call(channel, timeout, move |_| Ok(Reply::Ports(ports::list()?))).await;
        }
        Some(Operation::OpenPort(request)) => ports::connect(channel, frames, request.port).await,
        Some(Operation::Release(_)) => {
            requests.cancel_others(channel.id);
            match tokio::time::timeout(timeout, requests.wait_for_others()).await {
                // An error means that the lane is closed.
                Ok(()) => drop(channel.reply(IoReply::default()).await),
                Err(_) => channel.fail(Failure::timed_out()).await,
            }
        }
        None => {
            let message = "this guest is too old for the request";
            channel.fail(Failure::new(IoFailureKind::Unsupported, b"", message)).await;
        }
    }
}

/// Runs a request that has a reply and no channel. After the timeout it is cancelled, and its thread ends as soon as
/// the system call in progress does.
async fn call(
    channel: Channel,
    timeout: Duration,
    work: impl FnOnce(&Channel) -> Result<Reply> + Send + 'static,
) {
    let channel = Arc::new(channel);
    let task = spawn_blocking({
        let channel = channel.clone();
        move || work(&channel)
    });
    let result = match tokio::time::timeout(timeout, task).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Failure::new(IoFailureKind::Other, b"", "the request panicked")),
        Err(_) => Err(Failure::timed_out()),
    };
    match result {
        // An error means that the lane is closed.
        Ok(result) => drop(channel.reply(IoReply { result: Some(result), ..IoReply::default() }).await),
        Err(failure) => {
            channel.cancel();
            channel.fail(failure).await;
        }
    }
}

/// Runs a request that replies by itself and transfers content on its channel. The server cancels it if its client
/// leaves or stalls.
async fn transfer(
    channel: Channel,
    mut frames: Frames,
    work: impl FnOnce(&Channel, &mut Frames) -> Result<()> + Send + 'static,
) {
    let task = spawn_blocking(move || {
        if let Err(failure) = work(&channel, &mut frames) {
            channel.block_on(channel.fail(failure));
        }
    });
    // A panic closes the channel, and the server gives the request up.
    drop(task.await);
}
