//! One lane to an I/O worker, which is one of its two connections: requests with their replies, and the channels that
//! they open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Status, Streaming};
use workspace_agent_protocol::v1::io_from_guest::Payload as FromGuest;
use workspace_agent_protocol::v1::io_request::Operation;
use workspace_agent_protocol::v1::io_to_guest::Payload as ToGuest;
use workspace_agent_protocol::v1::{
    IoCancel, IoCredit, IoFrame, IoFromGuest, IoReply, IoRequest, IoToGuest, IoWelcome,
};

use crate::error::{Result, SandboxError};
use crate::io::error::check;
use crate::io::memory::SharedReservation;
use crate::leaf_mutex::LeafMutex;

/// Maximum number of messages to a worker that wait.
const OUTBOX_CAPACITY: usize = 64;
/// Maximum time in which a worker accepts no message.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a worker has beyond the timeout of a request: it may have been frozen.
const REPLY_GRACE: Duration = Duration::from_secs(15);
/// Maximum bytes that a worker can grant a channel. A hostile one may grant more.
const CREDIT_MAX: usize = 4 << 20;
/// Bytes of credit that a tree entry and a change of a file cost in addition to their names and content.
pub(crate) const ENTRY_COST: usize = 256;
const CHANGE_COST: usize = 64;

/// Sender of messages to a worker.
pub(crate) type Outbox = mpsc::Sender<Queued>;
/// Receiver of messages to a worker.
pub(crate) type MessagesToWorker = mpsc::Receiver<Queued>;

/// Message that waits until its worker accepts it.
#[derive(Debug)]
pub(crate) struct Queued {
    message: IoToGuest,
    _reservation: QueueReservation,
}

/// Limits that a message occupies while it is queued: a part of the queue of its channel, and memory of the owner.
pub(crate) type QueueReservation = (Option<OwnedSemaphorePermit>, SharedReservation);

impl Queued {
    fn new(payload: ToGuest, reservation: QueueReservation) -> Self {
        Self { message: IoToGuest { payload: Some(payload) }, _reservation: reservation }
    }

    /// Returns the message for the worker, which is no longer queued.
    pub(crate) fn into_message(self) -> std::result::Result<IoToGuest, Status> {
        Ok(self.message)
    }
}

/// One lane. It is closed when the worker is no longer needed, or fails.
#[derive(Debug)]
pub(crate) struct Lane {
    sandbox: String,
    /// `None` once the lane is closed.
    outbox: LeafMutex<Option<Outbox>>,
    /// Requests in progress, by id.
    calls: LeafMutex<HashMap<u64, Call>>,
    /// Id of the last request.
    last_id: AtomicU64,
}

/// Request in progress.
#[derive(Debug)]
struct Call {
    /// Sender of the reply; `None` once it was sent.
    reply: Option<oneshot::Sender<IoReply>>,
    /// Sender of the frames that the worker sent.
    frames: mpsc::UnboundedSender<IoFrame>,
    /// Bytes that the worker may still send.
    granted: u64,
    /// True if the worker has ended its direction of the channel.
    has_ended: bool,
    /// Bytes that may be sent to the worker.
    credit: Arc<Semaphore>,
}

/// Request that was sent, with its reply and the ends of its channel.
#[derive(Debug)]
pub(crate) struct StartedRequest {
    pub(crate) id: u64,
    pub(crate) reply: IoReply,
    /// Frames that the worker sends.
    pub(crate) frames: mpsc::UnboundedReceiver<IoFrame>,
    /// Bytes that may be sent to the worker.
    pub(crate) credit: Arc<Semaphore>,
    /// Cancels the request when it is dropped.
    pub(crate) cancel_guard: CancelOnDrop,
}

impl Lane {
    /// Creates a lane, and the stream of messages to its worker.
    pub(crate) fn new(sandbox: &str) -> (Arc<Self>, MessagesToWorker) {
        let (outbox, messages) = mpsc::channel(OUTBOX_CAPACITY);
        // The queue is empty.
        drop(outbox.try_send(Queued::new(ToGuest::Welcome(IoWelcome {}), QueueReservation::default())));
        let lane = Self {
            sandbox: sandbox.to_owned(),
            outbox: LeafMutex::new(Some(outbox)),
            calls: LeafMutex::default(),
            last_id: AtomicU64::new(0),
        };
        (Arc::new(lane), messages)
    }

    /// Receives the messages of the worker until it disconnects or violates the protocol.
    pub(crate) async fn receive(&self, mut messages: Streaming<IoFromGuest>) {
        while let Ok(Some(message)) = messages.message().await {
            if let Err(violation) = self.dispatch(message) {
                tracing::warn!(sandbox = self.sandbox, violation, "closed a lane of the I/O worker");
                break;
            }
        }
        self.close();
    }

    /// Closes the lane: the worker exits, and requests in progress fail.
    pub(crate) fn close(&self) {
        drop(self.outbox.lock().take());
        let calls = std::mem::take(&mut *self.calls.lock());
        for call in calls.values() {
            call.credit.close();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.outbox.lock().as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    /// Returns true if no request is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.lock().is_empty()
    }

    fn dispatch(&self, message: IoFromGuest) -> std::result::Result<(), &'static str> {
        match message.payload {
            Some(FromGuest::Reply(reply)) => {
                let mut calls = self.calls.lock();
                // The request may have been cancelled.
                let Some(call) = calls.get_mut(&reply.id) else { return Ok(()) };
                add_credit(&call.credit, reply.window);
                let sender = call.reply.take().ok_or("a request has two replies")?;
                drop(sender.send(reply));
                Ok(())
            }
            Some(FromGuest::Frame(frame)) => {
                let mut calls = self.calls.lock();
                let Some(call) = calls.get_mut(&frame.id).filter(|call| !call.has_ended) else {
                    return Ok(());
                };
                let cost = credit_cost(&frame) as u64;
                call.granted = call.granted.checked_sub(cost).ok_or("a channel exceeded its credit")?;
                call.has_ended = frame.end || frame.failure.is_some();
                // Empty frames cost nothing, so they must not take memory.
                if cost > 0 || call.has_ended {
                    drop(call.frames.send(frame));
                }
                Ok(())
            }
            Some(FromGuest::Credit(credit)) => {
                if let Some(call) = self.calls.lock().get(&credit.id) {
                    add_credit(&call.credit, credit.bytes);
                }
                Ok(())
            }
            Some(FromGuest::Hello(_)) => Err("a lane has two greetings"),
            None => Ok(()),
        }
    }

    async fn send(&self, payload: ToGuest, reservation: QueueReservation) -> Result<()> {
        let outbox = self.outbox.lock().clone().ok_or_else(|| self.lost())?;
        let sent = timeout(SEND_TIMEOUT, outbox.send(Queued::new(payload, reservation))).await;
        sent.map_err(|_| self.lost())?.map_err(|_| self.lost())
    }

    /// Returns the error of a request whose worker was lost.
    pub(crate) fn lost(&self) -> SandboxError {
        SandboxError::AgentLost { id: self.sandbox.clone(), reason: "its I/O worker exited".to_owned() }
    }

    fn timed_out(&self) -> SandboxError {
        SandboxError::AgentLost {
            id: self.sandbox.clone(),
            reason: "a file operation took too long".to_owned(),
        }
    }

    /// Sends a request and waits for its reply. Fails if the worker reports a failure. `window` is the number of bytes
    /// that the worker may send on the channel, and `memory` that of the queued request.
    pub(crate) async fn start(
        self: &Arc<Self>,
        operation: Operation,
        max_wait: Duration,
        window: u64,
        memory: SharedReservation,
    ) -> Result<StartedRequest> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, replied) = oneshot::channel();
        let (frames, received) = mpsc::unbounded_channel();
        let credit = Arc::new(Semaphore::new(0));
        let call =
            Call { reply: Some(reply), frames, granted: window, has_ended: false, credit: credit.clone() };
        self.calls.lock().insert(id, call);
        let mut cancel_guard = CancelOnDrop { lane: Some(self.clone()), id };
        let timeout_ms = u32::try_from(max_wait.as_millis()).unwrap_or(u32::MAX);
        let request = IoRequest { id, timeout_ms, window, operation: Some(operation) };
        self.send(ToGuest::Request(request), (None, memory)).await?;
        let reply = timeout(max_wait + REPLY_GRACE, replied).await.map_err(|_| self.timed_out())?;
        let reply = reply.map_err(|_| self.lost())?;
        if reply.failure.is_some() {
            cancel_guard.disarm();
        }
        check(reply.failure.as_ref())?;
        Ok(StartedRequest { id, reply, frames: received, credit, cancel_guard })
    }

    /// Sends a request that opens no channel, and returns its reply.
    pub(crate) async fn call(
        self: &Arc<Self>,
        operation: Operation,
        max_wait: Duration,
        memory: SharedReservation,
    ) -> Result<IoReply> {
        let mut started = self.start(operation, max_wait, 0, memory).await?;
        started.cancel_guard.disarm();
        Ok(started.reply)
    }

    /// Sends a frame. The caller has the credit for it.
    pub(crate) async fn send_frame(&self, frame: IoFrame, reservation: QueueReservation) -> Result<()> {
        self.send(ToGuest::Frame(frame), reservation).await
    }

    /// Grants the worker more bytes on a channel.
    pub(crate) async fn grant(&self, id: u64, bytes: u64) -> Result<()> {
        match self.calls.lock().get_mut(&id) {
            Some(call) => call.granted += bytes,
            None => return Err(self.lost()),
        }
        self.send(ToGuest::Credit(IoCredit { id, bytes }), QueueReservation::default()).await
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for call in self.calls.get_mut().values() {
            call.credit.close();
        }
    }
}

/// Adds credit, up to the maximum.
fn add_credit(credit: &Semaphore, bytes: u64) {
    let free = CREDIT_MAX.saturating_sub(credit.available_permits());
    credit.add_permits(usize::try_from(bytes).unwrap_or(usize::MAX).min(free));
}

/// Returns the bytes of credit that a frame costs: those of its content, and a surcharge for each entry and change.
pub(crate) fn credit_cost(frame: &IoFrame) -> usize {
    let entries = frame.entries.iter();
    let entries = entries.map(|entry| ENTRY_COST + entry.path.len() + entry.target.len() + entry.data.len());
    let changes = frame.changes.iter();
    let changes = changes.map(|change| CHANGE_COST + change.path.len() + change.from.len());
    frame.data.len() + entries.sum::<usize>() + changes.sum::<usize>()
}

/// Cancels a request when it is dropped, so that the worker stops when nobody waits.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    /// Lane of the request; `None` if the request is not to be cancelled.
    lane: Option<Arc<Lane>>,
    id: u64,
}

impl CancelOnDrop {
    /// Forgets a request that the worker has finished, which is not cancelled then.
    pub(crate) fn disarm(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.calls.lock().remove(&self.id);
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(lane) = self.lane.take() else { return };
        let was_known = lane.calls.lock().remove(&self.id).is_some();
        let outbox = lane.outbox.lock().clone();
        let Some(outbox) = outbox.filter(|_| was_known) else { return };
        let cancel = Queued::new(ToGuest::Cancel(IoCancel { id: self.id }), QueueReservation::default());
        if let Err(mpsc::error::TrySendError::Full(message)) = outbox.try_send(cancel) {
            tokio::spawn(async move { outbox.send_timeout(message, SEND_TIMEOUT).await.is_ok() });
        }
    }
}

#[cfg(test)]
mod tests {
    use workspace_agent_protocol::Bytes;
    use workspace_agent_protocol::v1::{IoFailure, IoFailureKind, IoHello, ListPorts};

    use super::*;
    use crate::io::channel::{Channel, ChannelLimits};

    const LIMIT: Duration = Duration::from_secs(30);

    fn request() -> Operation {
        Operation::ListPorts(ListPorts {})
    }

    fn from_guest(payload: FromGuest) -> IoFromGuest {
        IoFromGuest { payload: Some(payload) }
    }

    fn reply(id: u64, window: u64) -> IoFromGuest {
        from_guest(FromGuest::Reply(IoReply { id, window, ..IoReply::default() }))
    }

    fn frame(id: u64, len: usize) -> IoFromGuest {
        from_guest(FromGuest::Frame(IoFrame { id, data: Bytes::from(vec![0; len]), ..IoFrame::default() }))
    }

    /// Memory for requests that need none.
    const NO_RESERVATION: SharedReservation = None;

    /// Starts a request and replies to it. `window` is the number of bytes that the worker may send, `granted` the
    /// number that it may be sent.
    async fn started(lane: &Arc<Lane>, window: u64, granted: u64) -> StartedRequest {
        let id = lane.last_id.load(Ordering::Relaxed) + 1;
        let start = tokio::spawn({
            let lane = lane.clone();
            async move { lane.start(request(), LIMIT, window, NO_RESERVATION).await }
        });
        while !lane.calls.lock().contains_key(&id) {
            tokio::task::yield_now().await;
        }
        lane.dispatch(reply(id, granted)).unwrap();
        start.await.unwrap().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_may_send_only_what_it_was_granted() {
        let (lane, _messages) = Lane::new("sbx-1");
        let mut one = started(&lane, 10, 0).await;
        lane.dispatch(frame(one.id, 7)).unwrap();
        // Empty frames take no memory.
        for _ in 0..1_000 {
            lane.dispatch(frame(one.id, 0)).unwrap();
        }
        assert_eq!(one.frames.len(), 1);
        assert!(lane.dispatch(frame(one.id, 4)).is_err());
        lane.grant(one.id, 7).await.unwrap();
        lane.dispatch(frame(one.id, 10)).unwrap();
        assert_eq!(one.frames.recv().await.unwrap().data.len(), 7);
        // Frames of requests that nobody waits for are ignored.
        lane.dispatch(frame(99, 1 << 20)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn credit_of_a_worker_is_bounded() {
        let (lane, _messages) = Lane::new("sbx-1");
        let one = started(&lane, 0, u64::MAX).await;
        assert_eq!(one.credit.available_permits(), CREDIT_MAX);
        let credit = IoCredit { id: one.id, bytes: u64::MAX };
        lane.dispatch(from_guest(FromGuest::Credit(credit))).unwrap();
        assert_eq!(one.credit.available_permits(), CREDIT_MAX);
    }

    fn count_frames(messages: &mut MessagesToWorker) -> usize {
        let queued = std::iter::from_fn(|| messages.try_recv().ok());
        queued.filter(|queued| matches!(queued.message.payload, Some(ToGuest::Frame(_)))).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_accepts_nothing_fills_only_the_queue_of_its_channel() {
        let (lane, mut messages) = Lane::new("sbx-1");
        // It grants everything.
        let one = started(&lane, 0, u64::MAX).await;
        let memory: SharedReservation = Some(Arc::new(Box::new("memory")));
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let limits = ChannelLimits { _permit: permit, queue_max: 300, memory: memory.clone() };
        let channel = Channel::new(lane.clone(), one, limits);
        let sending = tokio::spawn(async move {
            let channel = channel;
            for _ in 0..5 {
                channel.writer.send(Bytes::from(vec![0; 100])).await.unwrap();
            }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!sending.is_finished());
        assert_eq!(count_frames(&mut messages), 3);
        sending.await.unwrap();
        let in_use = |memory: &SharedReservation| memory.as_ref().map(Arc::strong_count);
        assert_eq!(in_use(&memory), Some(3), "the channel is gone, and two frames are queued");
        assert_eq!(count_frames(&mut messages), 2);
        assert_eq!(in_use(&memory), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn second_replies_and_greetings_are_violations() {
        let (lane, _messages) = Lane::new("sbx-1");
        let one = started(&lane, 0, 0).await;
        assert!(lane.dispatch(reply(one.id, 0)).is_err());
        assert!(lane.dispatch(from_guest(FromGuest::Hello(IoHello::default()))).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_nobody_waits_for_are_cancelled() {
        let (lane, mut messages) = Lane::new("sbx-1");
        let one = started(&lane, 10, 0).await;
        let id = one.id;
        drop(one);
        let mut sent = Vec::new();
        while let Ok(queued) = messages.try_recv() {
            sent.extend(queued.message.payload);
        }
        assert!(matches!(sent.last(), Some(ToGuest::Cancel(cancel)) if cancel.id == id), "{sent:?}");
        assert!(lane.is_idle());
        // Without a reply, a request fails after its time.
        let late = lane.call(request(), LIMIT, NO_RESERVATION).await.unwrap_err();
        assert!(matches!(late, SandboxError::AgentLost { .. }), "{late}");
        assert!(lane.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_fail_with_their_worker() {
        let (lane, _messages) = Lane::new("sbx-1");
        let mut one = started(&lane, 10, 0).await;
        lane.close();
        assert!(lane.is_closed() && one.frames.recv().await.is_none() && one.credit.is_closed());
        assert!(lane.call(request(), LIMIT, NO_RESERVATION).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_a_worker_end_the_request() {
        let (lane, _messages) = Lane::new("sbx-1");
        let call = tokio::spawn({
            let lane = lane.clone();
            async move { lane.call(request(), LIMIT, NO_RESERVATION).await }
        });
        while lane.is_idle() {
            tokio::task::yield_now().await;
        }
        let failure = IoFailure { kind: IoFailureKind::NotFound.into(), ..IoFailure::default() };
        let reply = IoReply { id: 1, failure: Some(failure), ..IoReply::default() };
        lane.dispatch(from_guest(FromGuest::Reply(reply))).unwrap();
        assert!(matches!(call.await.unwrap(), Err(SandboxError::File(_))));
        assert!(lane.is_idle());
    }
}
