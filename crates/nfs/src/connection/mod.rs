//! Connection of a client: reads its requests and executes them with one or more threads.
//!
//! One thread at a time reads requests: the leader. It executes a quick request itself, so that no other thread must be
//! woken, and sends the reply. Before a request that may take long, or when more bytes have arrived, it lets another
//! thread lead. So requests of one connection run in parallel, up to a limit. Further requests stay unread in the
//! socket.

mod extra_threads;
mod large_requests;
mod socket;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use self::extra_threads::ExtraThread;
pub(crate) use self::extra_threads::ExtraThreads;
pub(crate) use self::large_requests::LargeRequests;
use self::large_requests::Permit;
use self::socket::Socket;
use crate::acting;
use crate::buffers::{BufferPool, is_large};
use crate::dispatch::{self, Caller, Unanswered};
use crate::hooks::{Refusal, RefusalReason};
use crate::server::{Context, OpenConnection};
use crate::wire::{RecordError, RecordReader};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Length of the stack of a thread, in bytes. Nothing in this crate recurses or has large local variables.
const STACK_LEN: usize = 256 * 1024;

/// Time after which a thread without work ends, if it is not the only one of its connection.
const SPARE_THREAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Connection of a client.
struct Connection {
    context: Arc<Context>,
    stream: Arc<TcpStream>,
    client: SocketAddr,
    state: Mutex<State>,
    /// Notified when a thread may lead, and when the connection has ended.
    changed: Condvar,
    /// Held while a reply is sent, so that replies do not mix.
    writer: Mutex<()>,
    /// Guard by which the connection counts as open until its last thread has ended.
    open: OpenConnection,
}

struct State {
    /// Reader of requests; `None` while a thread leads.
    reader: Option<RecordReader<Socket>>,
    /// Number of threads that wait to lead.
    waiting: usize,
    /// One permission for each thread beyond the first.
    extra_threads: Vec<ExtraThread>,
    has_ended: bool,
}

/// Starts the first thread of a connection. `open` is dropped when the connection has ended.
pub(crate) fn start(context: Arc<Context>, client: SocketAddr, open: OpenConnection) -> io::Result<()> {
    let stream = Arc::clone(&open.stream);
    stream.set_nodelay(true)?;
    socket::set_timeouts(&stream, &context.limits)?;
    let reader = RecordReader::new(Socket::new(Arc::clone(&stream), client.ip(), Arc::clone(&context)));
    let state = State { reader: Some(reader), waiting: 0, extra_threads: Vec::new(), has_ended: false };
    let (state, changed) = (Mutex::new(state), Condvar::new());
    let connection = Connection { context, stream, client, state, changed, writer: Mutex::new(()), open };
    spawn(Arc::new(connection))
}

/// Starts a thread of a connection.
fn spawn(connection: Arc<Connection>) -> io::Result<()> {
    let builder = thread::Builder::new().name("nfs-connection".to_owned()).stack_size(STACK_LEN);
    builder.spawn(move || connection.work()).map(|_| ())
}

/// Buffers of a thread.
#[derive(Default)]
struct Buffers {
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Permit for the memory of a large request and its reply; held while one of the buffers is large. Dropped last.
    permit: Option<Permit>,
}

impl Buffers {
    /// Empties the buffers after a request, moves large ones to the pool, and releases the permit.
    fn recycle(&mut self, pool: &BufferPool) {
        let is_large = is_large(self.request.capacity()) || is_large(self.reply.capacity());
        debug_assert!(self.permit.is_some() || !is_large, "large buffers have a permit");
        pool.recycle(&mut self.request);
        pool.recycle(&mut self.reply);
        self.permit = None;
    }
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Body of a thread: waits to lead, and leads, until the connection has ended or the thread is not needed.
    fn work(self: Arc<Self>) {
        acting::prepare_thread();
        let mut buffers = Buffers::default();
        while let Some(reader) = self.begin_to_lead() {
            self.lead(reader, &mut buffers);
        }
    }

    /// Waits until no other thread leads, and takes the reader. `None` if the connection has ended or the thread is not
    /// needed.
    fn begin_to_lead(&self) -> Option<RecordReader<Socket>> {
        let mut state = self.lock();
        loop {
            if state.has_ended {
                state.extra_threads.pop();
                return None;
            }
            if let Some(reader) = state.reader.take() {
                return Some(reader);
            }
            state.waiting += 1;
            let timeout = self.changed.wait_for(&mut state, SPARE_THREAD_TIMEOUT);
            state.waiting -= 1;
            let is_spare = timeout.timed_out() && state.reader.is_none();
            if is_spare && state.extra_threads.pop().is_some() {
                return None;
            }
        }
    }

    /// Reads and executes requests until this thread has let another thread lead, or the connection ends.
    fn lead(self: &Arc<Self>, reader: RecordReader<Socket>, buffers: &mut Buffers) {
        let mut leadership = Leadership { connection: self, reader: Some(reader) };
        while let Some(reader) = &mut leadership.reader {
            let read = reader.read(&mut buffers.request);
            buffers.permit = reader.source_mut().take_permit();
            match read {
                Ok(true) => {}
                Ok(false) => return leadership.end(),
                Err(error) => {
                    self.report(&error);
                    return leadership.end();
                }
            }
            if reader.has_buffered() {
                leadership.hand_over();
            }
            let has_answered = self.answer(buffers, &mut leadership);
            buffers.recycle(&self.context.buffers);
            if !has_answered {
                return leadership.end();
            }
        }
    }

    /// Executes a request and sends the reply. Returns false if the connection cannot be used any more.
    fn answer(self: &Arc<Self>, buffers: &mut Buffers, leadership: &mut Leadership<'_>) -> bool {
        let mut caller = Caller {
            context: &self.context,
            client: self.client,
            used_export: &self.open.used_export,
            before_waiting: &mut || leadership.hand_over(),
            admit_large_reply: &mut || self.admit(&mut buffers.permit),
        };
        match dispatch::execute(&mut caller, &buffers.request, &mut buffers.reply) {
            Ok(()) => self.send(&buffers.reply),
            Err(Unanswered::Malformed) => {
                self.refuse_malformed();
                false
            }
            Err(Unanswered::Stopping) => false,
        }
    }

    /// Waits for a permit for a large reply, unless the request has one. Returns false if the server stops.
    fn admit(&self, permit: &mut Option<Permit>) -> bool {
        if permit.is_none() {
            *permit = self.context.large_requests.acquire(self.client.ip());
        }
        permit.is_some()
    }

    /// Sends a reply. Returns false if the connection cannot be used any more.
    fn send(&self, reply: &[u8]) -> bool {
        let _writer = self.writer.lock();
        let sent = socket::send(&self.stream, reply, &self.context.limits);
        if let Err(error) = &sent {
            tracing::debug!(%error, client = %self.client, "failed to send NFS reply");
            // Perhaps a part of the reply was sent, and no other reply may follow it.
            self.shut_down();
        }
        sent.is_ok()
    }

    /// Shuts down the socket, so that all threads of the connection notice the end.
    fn shut_down(&self) {
        if let Err(error) = self.stream.shutdown(std::net::Shutdown::Both) {
            tracing::trace!(%error, "NFS connection was closed by the client");
        }
    }

    /// Logs the reason for which a request could not be read, or reports it to the observer.
    fn report(&self, error: &RecordError) {
        match error {
            RecordError::Io(error) => tracing::debug!(%error, client = %self.client, "NFS connection ended"),
            RecordError::Incomplete | RecordError::TooLong => self.refuse_malformed(),
        }
    }

    /// Reports to the observer that the client has sent data that is not an RPC call.
    fn refuse_malformed(&self) {
        let reason = RefusalReason::MalformedRecord;
        self.context.observer.refused(Refusal { client: self.client, export: None, reason });
    }
}

/// Role of the thread that reads requests. If it is dropped with the reader, or in a panic, the connection ends.
struct Leadership<'a> {
    connection: &'a Arc<Connection>,
    reader: Option<RecordReader<Socket>>,
}

impl Leadership<'_> {
    /// Lets another thread lead: wakes a waiting thread, or starts one if the limits allow it. Does nothing if this
    /// thread does not lead any more.
    fn hand_over(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        let mut state = self.connection.lock();
        state.reader = Some(reader);
        if state.waiting > 0 {
            self.connection.changed.notify_one();
        } else if state.extra_threads.len() + 1 < self.connection.context.limits.requests_per_connection
            && let Some(thread) = self.connection.context.extra_threads.reserve()
        {
            state.extra_threads.push(thread);
            drop(state);
            if let Err(error) = spawn(Arc::clone(self.connection)) {
                // The existing threads go on, so the connection only executes fewer requests at the same time.
                tracing::warn!(%error, "failed to start thread for NFS connection");
                self.connection.lock().extra_threads.pop();
            }
        }
    }

    /// Ends the connection for all of its threads.
    fn end(&mut self) {
        self.reader = None;
        self.connection.lock().has_ended = true;
        self.connection.changed.notify_all();
        self.connection.shut_down();
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        if self.reader.is_some() || thread::panicking() {
            self.end();
        }
    }
}
