//! One lane, which is a gRPC stream to the server: dispatches its requests, and routes frames and credits to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use workspace_agent_protocol::PROTOCOL_VERSION;
use workspace_agent_protocol::v1::agent_service_client::AgentServiceClient;
use workspace_agent_protocol::v1::io_from_guest::Payload as FromGuest;
use workspace_agent_protocol::v1::io_to_guest::Payload as ToGuest;
use workspace_agent_protocol::v1::{IoFrame, IoFromGuest, IoHello, IoLane, IoRequest, IoToGuest};

use super::channel::{OUTBOX_CAPACITY, Outbox, ReceivedFrames, RequestHandle, Shared};
use super::failure::Failure;
use super::request;
use super::write::PendingFile;
use crate::server_connection::{ConnectionError, ConnectionParameters, connect};

/// Interval at which a request that waits for others checks whether they have ended.
const ACTIVE_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum time until the reply, if the request has no timeout.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Requests in progress on a lane.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    running: Mutex<HashMap<u64, Running>>,
    /// Written files that have not replaced their targets yet, by the id of the request that wrote them.
    pending: Mutex<HashMap<u64, PendingFile>>,
    /// Has one reference here, and one for each request whose task has not ended.
    active: Arc<()>,
}

/// Request in progress.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    /// Sender of the frames that arrive for the request.
    frames: mpsc::UnboundedSender<IoFrame>,
}

impl Requests {
    /// Adds a request. `window` is the number of bytes that it may send to the server.
    fn add(&self, id: u64, window: u64, outbox: Outbox) -> (RequestHandle, ReceivedFrames) {
        let shared = Arc::new(Shared::new(window));
        let (frames, receiver) = mpsc::unbounded_channel();
        let running = Running { shared: shared.clone(), frames };
        self.running().insert(id, running);
        RequestHandle::new(id, outbox, shared, receiver, self.active.clone())
    }

    fn running(&self) -> parking_lot::MutexGuard<'_, HashMap<u64, Running>> {
        self.running.lock()
    }

    fn pending(&self) -> parking_lot::MutexGuard<'_, HashMap<u64, PendingFile>> {
        self.pending.lock()
    }

    /// Keeps a written file until it is published or its write is cancelled. Fails, and removes the file, if the write
    /// was cancelled before this call: nobody would publish or cancel it again.
    pub(crate) fn keep_pending(&self, id: u64, file: PendingFile) -> Result<(), Failure> {
        // Held until the file is inserted: a cancellation removes the request first, and the file after that.
        let running = self.running();
        if !running.contains_key(&id) {
            return Err(Failure::cancelled());
        }
        self.pending().insert(id, file);
        Ok(())
    }

    pub(crate) fn take_pending(&self, id: u64) -> Option<PendingFile> {
        self.pending().remove(&id)
    }

    fn cancel(&self, id: u64) {
        if let Some(running) = self.running().remove(&id) {
            running.shared.cancel();
        }
        drop(self.take_pending(id));
    }

    /// Cancels everything except one request, and drops written files.
    pub(crate) fn cancel_others(&self, id: u64) {
        let others: Vec<Running> = {
            let mut running = self.running();
            let kept = running.remove(&id);
            let others = running.drain().map(|(_, running)| running).collect();
            running.extend(kept.map(|kept| (id, kept)));
            others
        };
        others.iter().for_each(|running| running.shared.cancel());
        self.pending().clear();
    }

    /// Waits until the tasks of all requests but one have ended, and so have closed their files.
    pub(crate) async fn wait_for_others(&self) {
        // The two remaining references are `self.active` and that of the calling request.
        while Arc::strong_count(&self.active) > 2 {
            tokio::time::sleep(ACTIVE_POLL_INTERVAL).await;
        }
    }

    fn remove(&self, id: u64) {
        self.running().remove(&id);
    }

    /// Passes a frame to its request. Frames of requests that have ended are dropped.
    fn route(&self, frame: IoFrame) {
        if let Some(running) = self.running().get(&frame.id) {
            // The task may have ended.
            drop(running.frames.send(frame));
        }
    }

    fn add_credit(&self, id: u64, bytes: u64) {
        if let Some(running) = self.running().get(&id) {
            running.shared.add_credit(bytes);
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        for running in self.running().values() {
            running.shared.cancel();
        }
    }
}

/// Serves a lane until the server closes it.
pub(crate) async fn run(parameters: &ConnectionParameters, lane: IoLane) -> Result<(), ConnectionError> {
    let mut client = AgentServiceClient::new(connect(parameters).await?);
    let (outbox, receiver) = mpsc::channel(OUTBOX_CAPACITY);
    outbox.send(hello(parameters, lane)).await.map_err(|_| ConnectionError::Closed)?;
    let mut incoming = client.io(ReceiverStream::new(receiver)).await?.into_inner();
    let first = incoming.message().await?.and_then(|message| message.payload);
    if !matches!(first, Some(ToGuest::Welcome(_))) {
        return Err(ConnectionError::Status(Status::internal("the server did not accept the lane")));
    }
    let requests = Arc::new(Requests::default());
    while let Some(message) = incoming.message().await? {
        dispatch(&requests, &outbox, message);
    }
    Ok(())
}

fn hello(parameters: &ConnectionParameters, lane: IoLane) -> IoFromGuest {
    let hello = IoHello {
        sandbox_id: parameters.sandbox.clone(),
        ticket: parameters.token.clone(),
        generation: PROTOCOL_VERSION,
        lane: lane.into(),
    };
    IoFromGuest { payload: Some(FromGuest::Hello(hello)) }
}

/// Handles a message of the server. Unknown messages of a newer server are ignored.
fn dispatch(requests: &Arc<Requests>, outbox: &Outbox, message: IoToGuest) {
    match message.payload {
        Some(ToGuest::Request(request)) => start(requests, outbox, request),
        Some(ToGuest::Frame(frame)) => requests.route(frame),
        Some(ToGuest::Credit(credit)) => requests.add_credit(credit.id, credit.bytes),
        Some(ToGuest::Cancel(cancel)) => requests.cancel(cancel.id),
        Some(ToGuest::Welcome(_)) | None => {}
    }
}

/// Starts the task of a request.
fn start(requests: &Arc<Requests>, outbox: &Outbox, request: IoRequest) {
    let id = request.id;
    let (handle, frames) = requests.add(id, request.window, outbox.clone());
    let timeout = match request.timeout_ms {
        0 => REPLY_TIMEOUT,
        milliseconds => Duration::from_millis(milliseconds.into()),
    };
    let requests = requests.clone();
    tokio::spawn(async move {
        request::serve(request.operation, handle, frames, &requests, timeout).await;
        requests.remove(id);
    });
}

#[cfg(test)]
mod tests {
    use workspace_agent_protocol::v1::WriteFile;

    use super::*;

    fn pending_file(directory: &std::path::Path) -> PendingFile {
        let path = directory.join("file").into_os_string().into_encoded_bytes();
        PendingFile::create(WriteFile { path, ..WriteFile::default() }).unwrap()
    }

    #[tokio::test]
    async fn a_file_of_a_cancelled_write_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (outbox, _receiver) = mpsc::channel(OUTBOX_CAPACITY);
        let (requests, window) = (Requests::default(), 0);
        let cancellations: [fn(&Requests); 2] =
            [|requests| requests.cancel(7), |requests| requests.cancel_others(8)];
        for cancel in cancellations {
            let _request = requests.add(7, window, outbox.clone());
            // As if the server cancelled the write while the worker syncs its file.
            cancel(&requests);
            requests.keep_pending(7, pending_file(directory.path())).unwrap_err();
            assert!(requests.take_pending(7).is_none());
        }
        let _request = requests.add(7, window, outbox);
        requests.keep_pending(7, pending_file(directory.path())).unwrap();
        requests.remove(7);
        assert!(
            requests.take_pending(7).is_some(),
            "a file waits for its publication after the first request"
        );
    }
}
