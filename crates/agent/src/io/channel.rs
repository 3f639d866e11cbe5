//! Channels: the content of requests, with flow control by credits in both directions.
//!
//! A *lane* is one gRPC stream of the worker to the server (`Io` in `agent.proto`). It carries requests, their replies,
//! and a channel for each request that transfers content. A *credit* allows the other end to send a number of bytes;
//! the first credit of a channel is its *window*. Blocking tasks use a channel from their own threads; asynchronous
//! tasks await it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::io_from_guest::Payload;
use workspace_agent_protocol::v1::{IoCredit, IoFrame, IoFromGuest, IoReply};

use super::failure::{Failure, Result};

/// Maximum number of bytes of content in a frame.
pub(crate) const FRAME_MAX: usize = 256 << 10;
/// Maximum number of messages to the server that are queued on a lane.
pub(crate) const OUTBOX_CAPACITY: usize = 16;

/// Sender of messages on a lane.
pub(crate) type Outbox = mpsc::Sender<IoFromGuest>;

/// State of a request that the reader of the lane and the task of the request share.
#[derive(Debug)]
pub(crate) struct Shared {
    is_cancelled: AtomicBool,
    /// Bytes that may be sent to the server.
    credit: Semaphore,
}

impl Shared {
    pub(crate) fn new(window: u64) -> Self {
        Self { is_cancelled: AtomicBool::new(false), credit: Semaphore::new(permits(window)) }
    }

    /// Ends the request: its task fails at the next step.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.credit.close();
    }

    pub(crate) fn add_credit(&self, bytes: u64) {
        let free = Semaphore::MAX_PERMITS - self.credit.available_permits();
        self.credit.add_permits(permits(bytes).min(free));
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

/// Converts a number of bytes to permits of a semaphore, one per byte.
fn permits(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)
}

/// Handle of a request: sends its reply, and the frames of its channel if it transfers content.
#[derive(Debug)]
pub(crate) struct RequestHandle {
    pub(crate) id: u64,
    outbox: Outbox,
    shared: Arc<Shared>,
    /// True once the reply was sent.
    has_replied: AtomicBool,
    runtime: Handle,
    /// Reference that `Requests::wait_for_others` counts: it is dropped when the task of the request has ended.
    _active: Arc<()>,
}

/// Frames that arrive from the server on the channel of a request. The queue needs no limit, because the server may
/// send only as many bytes as it was granted.
#[derive(Debug)]
pub(crate) struct ReceivedFrames {
    receiver: mpsc::UnboundedReceiver<IoFrame>,
    has_ended: bool,
}

impl ReceivedFrames {
    /// Receives the next frame. `None` after the last one.
    pub(crate) async fn receive(&mut self) -> Result<Option<IoFrame>> {
        if self.has_ended {
            return Ok(None);
        }
        let frame = self.receiver.recv().await.ok_or_else(Failure::cancelled)?;
        self.has_ended = frame.end;
        Ok(Some(frame))
    }

    /// Receives the next frame in a blocking task.
    pub(crate) fn blocking_receive(&mut self) -> Result<Option<IoFrame>> {
        if self.has_ended {
            return Ok(None);
        }
        let frame = self.receiver.blocking_recv().ok_or_else(Failure::cancelled)?;
        self.has_ended = frame.end;
        Ok(Some(frame))
    }
}

impl RequestHandle {
    /// Creates the channel of a request. The sender of frames is dropped to cancel it.
    pub(crate) fn new(
        id: u64,
        outbox: Outbox,
        shared: Arc<Shared>,
        frames: mpsc::UnboundedReceiver<IoFrame>,
        active: Arc<()>,
    ) -> (Self, ReceivedFrames) {
        let has_replied = AtomicBool::new(false);
        let handle = Self { id, outbox, shared, has_replied, runtime: Handle::current(), _active: active };
        (handle, ReceivedFrames { receiver: frames, has_ended: false })
    }

    /// Fails if the server cancelled the request. Long operations call it between their steps.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.shared.is_cancelled() { Err(Failure::cancelled()) } else { Ok(()) }
    }

    /// Waits for a future from a blocking task.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    async fn push(&self, payload: Payload) -> Result<()> {
        let message = IoFromGuest { payload: Some(payload) };
        self.outbox.send(message).await.map_err(|_| Failure::cancelled())
    }

    /// Sends the reply to the request.
    pub(crate) async fn reply(&self, reply: IoReply) -> Result<()> {
        self.has_replied.store(true, Ordering::Relaxed);
        self.push(Payload::Reply(IoReply { id: self.id, ..reply })).await
    }

    /// Sends a frame, as soon as the server has granted `cost` bytes. The cost is the size of the content, or an upper
    /// bound of the size of the entries.
    pub(crate) async fn send(&self, frame: IoFrame, cost: usize) -> Result<()> {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let permit = self.shared.credit.acquire_many(cost).await.map_err(|_| Failure::cancelled())?;
        permit.forget();
        self.push(Payload::Frame(IoFrame { id: self.id, ..frame })).await
    }

    /// Sends content, in frames.
    pub(crate) async fn send_data(&self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(FRAME_MAX));
            let cost = piece.len();
            self.send(IoFrame { data: piece, ..IoFrame::default() }, cost).await?;
        }
        Ok(())
    }

    /// Ends the direction to the server.
    pub(crate) async fn end(&self) -> Result<()> {
        self.push(Payload::Frame(IoFrame { id: self.id, end: true, ..IoFrame::default() })).await
    }

    /// Grants the server more bytes, after that many were consumed.
    pub(crate) async fn grant(&self, bytes: usize) -> Result<()> {
        match bytes {
            0 => Ok(()),
            bytes => self.push(Payload::Credit(IoCredit { id: self.id, bytes: bytes as u64 })).await,
        }
    }

    /// Ends the request, whose task may still run.
    pub(crate) fn cancel(&self) {
        self.shared.cancel();
    }

    /// Sends the failure of a request: as its reply, or after that as a frame.
    pub(crate) async fn fail(&self, failure: Failure) {
        let failure = Some(failure.into_message());
        // An error means that the lane is closed.
        drop(match self.has_replied.load(Ordering::Relaxed) {
            false => self.reply(IoReply { failure, ..IoReply::default() }).await,
            true => {
                let frame = IoFrame { id: self.id, failure, end: true, ..IoFrame::default() };
                self.push(Payload::Frame(frame)).await
            }
        });
    }
}
