//! Channels: streams of content that belong to a request, with flow control by credit. In each direction, a side may
//! send as many bytes as the other has granted. A *lane* is one of the two connections of an I/O worker.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::{IoFrame, IoReply};

use crate::error::{Result, SandboxError};
use crate::io::error::check;
use crate::io::lane::{CancelOnDrop, Lane, QueueReservation, StartedRequest, credit_cost};
use crate::io::memory::SharedReservation;

/// Maximum number of bytes of content in a frame.
const FRAME_MAX: usize = 256 << 10;
/// Maximum time in which a worker sends or accepts no content. It is long because a worker sends nothing while it is
/// frozen for a commit, and while it syncs a written file.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Channel of a request. Dropping both parts cancels the request, unless it has ended.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) reply: IoReply,
    pub(crate) reader: ChannelReader,
    pub(crate) writer: ChannelWriter,
}

/// Reading part of a channel.
#[derive(Debug)]
pub(crate) struct ChannelReader {
    shared: Arc<Shared>,
    frames: mpsc::UnboundedReceiver<IoFrame>,
    /// Bytes of credit that the last frame cost, and are granted again when the next is received.
    consumed: u64,
    /// True if the worker has ended its direction of the channel.
    has_ended: bool,
}

/// Writing part of a channel.
#[derive(Debug)]
pub(crate) struct ChannelWriter {
    shared: Arc<Shared>,
    /// Bytes that the worker has granted, and that were not sent yet.
    credit: Arc<Semaphore>,
    /// Bytes that may be queued in this process. A hostile worker can grant more than it accepts.
    queue: Arc<Semaphore>,
}

#[derive(Debug)]
struct Shared {
    lane: Arc<Lane>,
    id: u64,
    /// Cancels the request when both parts are dropped.
    _cancel_guard: CancelOnDrop,
    limits: ChannelLimits,
}

/// Limits that a channel occupies until it is dropped.
#[derive(Debug)]
pub(crate) struct ChannelLimits {
    /// Limits the channels of the sandbox.
    pub(crate) _permit: OwnedSemaphorePermit,
    /// Maximum number of bytes in the queue to the worker.
    pub(crate) queue_max: usize,
    /// Memory of the queues in both directions.
    pub(crate) memory: SharedReservation,
}

impl Channel {
    /// Creates the channel of a request.
    pub(crate) fn new(lane: Arc<Lane>, started: StartedRequest, limits: ChannelLimits) -> Self {
        let StartedRequest { id, reply, frames, credit, cancel_guard } = started;
        let queue = Arc::new(Semaphore::new(limits.queue_max));
        let shared = Arc::new(Shared { lane, id, _cancel_guard: cancel_guard, limits });
        let reader = ChannelReader { shared: shared.clone(), frames, consumed: 0, has_ended: false };
        Self { reply, reader, writer: ChannelWriter { shared, credit, queue } }
    }
}

impl ChannelReader {
    /// Receives the next frame; `None` after the last one. Waits for at most [`STALL_TIMEOUT`].
    pub(crate) async fn receive(&mut self) -> Result<Option<IoFrame>> {
        let received = timeout(STALL_TIMEOUT, self.receive_without_timeout()).await;
        received.unwrap_or_else(|_| Err(self.shared.stalled()))
    }

    /// Receives the next frame like [`Self::receive`], without a timeout: a watch may report nothing for days.
    pub(crate) async fn receive_without_timeout(&mut self) -> Result<Option<IoFrame>> {
        if self.has_ended {
            return Ok(None);
        }
        let consumed = std::mem::take(&mut self.consumed);
        if consumed > 0 {
            self.shared.lane.grant(self.shared.id, consumed).await?;
        }
        let frame = self.frames.recv().await.ok_or_else(|| self.shared.lane.lost())?;
        check(frame.failure.as_ref())?;
        self.consumed = credit_cost(&frame) as u64;
        self.has_ended = frame.end;
        Ok((self.consumed > 0 || !frame.end).then_some(frame))
    }
}

impl ChannelWriter {
    /// Sends content, in frames, as fast as the worker accepts it.
    pub(crate) async fn send(&self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(FRAME_MAX));
            self.send_frame(IoFrame { data: piece, ..IoFrame::default() }).await?;
        }
        Ok(())
    }

    /// Sends a frame, as soon as the worker has granted the bytes of credit that it costs.
    pub(crate) async fn send_frame(&self, frame: IoFrame) -> Result<()> {
        let cost = u32::try_from(credit_cost(&frame)).unwrap_or(u32::MAX);
        let permit = timeout(STALL_TIMEOUT, self.credit.acquire_many(cost)).await;
        permit.map_err(|_| self.shared.stalled())?.map_err(|_| self.shared.lane.lost())?.forget();
        let queued = timeout(STALL_TIMEOUT, self.queue.clone().acquire_many_owned(cost)).await;
        // The semaphore is never closed.
        let queue = queued.map_err(|_| self.shared.stalled())?.ok();
        let reservation = (queue, self.shared.limits.memory.clone());
        self.shared.lane.send_frame(IoFrame { id: self.shared.id, ..frame }, reservation).await
    }

    /// Ends the direction to the worker.
    pub(crate) async fn end(&self) -> Result<()> {
        let frame = IoFrame { id: self.shared.id, end: true, ..IoFrame::default() };
        self.shared.lane.send_frame(frame, QueueReservation::default()).await
    }

    /// Returns the id of the request that opened the channel.
    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }
}

impl Shared {
    /// Returns the error of a transfer without progress for [`STALL_TIMEOUT`].
    fn stalled(&self) -> SandboxError {
        match self.lane.lost() {
            SandboxError::AgentLost { id, .. } => {
                SandboxError::AgentLost { id, reason: "a transfer made no progress".to_owned() }
            }
            other => other,
        }
    }
}
