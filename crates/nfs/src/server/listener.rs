//! Listener of a server. One thread accepts connections within the limits. Another thread makes a sweep every few
//! seconds: it closes unused descriptors, and rewrites logs of file handles that are mostly obsolete.
//!
//! A *volume* is the directory of an export together with the table of its file handles and its cached descriptors.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::connections::{Connections, Opened};
use super::context::Context;
use crate::connection;
use crate::error::NfsError;
use crate::hooks::{Refusal, RefusalReason};
use crate::rpcbind;
use crate::settings::Settings;
use crate::state_dir::StateDir;

/// Pause after a failure to accept a connection, for example when the process has no free descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Maximum time for which [`Listener::stop`] waits until all connections have ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Function of a thread.
type Task = Box<dyn FnOnce() + Send>;

/// Function that starts a thread with a name.
type SpawnThread = fn(&str, Task) -> io::Result<JoinHandle<()>>;

/// Running listener with its threads.
pub(super) struct Listener {
    socket: Arc<TcpListener>,
    port: u16,
    connections: Arc<Connections>,
    threads: Vec<JoinHandle<()>>,
    /// True if the server is registered with rpcbind.
    is_registered: bool,
}

impl Listener {
    /// Binds a port and starts the threads. After a failure, no thread runs and the port is free.
    pub(super) fn start(
        settings: &Settings,
        state: &StateDir,
        context: &Arc<Context>,
    ) -> Result<Self, NfsError> {
        Self::start_with(settings, state, context, spawn)
    }

    fn start_with(
        settings: &Settings,
        state: &StateDir,
        context: &Arc<Context>,
        spawn: SpawnThread,
    ) -> Result<Self, NfsError> {
        let (socket, port) = bind(settings, state)?;
        context.large_requests.reopen();
        let connections = Arc::new(Connections::default());
        let socket = Arc::new(socket);
        let mut listener = Self { socket, port, connections, threads: Vec::new(), is_registered: false };
        if let Err(error) = listener.start_threads(context, spawn) {
            listener.shut_down(context);
            return Err(NfsError::CannotStartThread(error));
        }
        listener.is_registered = settings.register_with_rpcbind && register(port);
        let is_registered = listener.is_registered;
        tracing::info!(address = %settings.address, port, is_registered, "NFS server started");
        Ok(listener)
    }

    /// Starts the threads. After a failure, some may run.
    fn start_threads(&mut self, context: &Arc<Context>, spawn: SpawnThread) -> io::Result<()> {
        let (socket, shared) = (Arc::clone(&self.socket), Arc::clone(context));
        let connections = Arc::clone(&self.connections);
        let accepting = move || accept_all(&socket, &shared, &connections);
        self.threads.push(spawn("nfs-accept", Box::new(accepting))?);
        let (shared, connections) = (Arc::clone(context), Arc::clone(&self.connections));
        self.threads.push(spawn("nfs-sweep", Box::new(move || sweep(&shared, &connections)))?);
        Ok(())
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn connection_count(&self) -> usize {
        self.connections.count()
    }

    /// Closes the listener and all connections. Waits for their threads, at most [`STOP_TIMEOUT`] for those of
    /// connections. Then closes the cached descriptors of all exports.
    pub(super) fn stop(self, context: &Context) {
        if self.is_registered
            && let Err(error) = rpcbind::unregister(rpcbind::RPCBIND)
        {
            tracing::warn!(%error, "failed to take back the registration with rpcbind");
        }
        let port = self.port;
        self.shut_down(context);
        tracing::info!(port, "NFS server stopped");
    }

    /// Stops like [`stop`](Self::stop), but does not undo the registration with rpcbind.
    fn shut_down(self, context: &Context) {
        // First: otherwise a connection that ends passes its permit for a large request to a waiting connection.
        context.large_requests.close();
        self.connections.stop();
        // Wakes the thread that accepts connections. The standard library cannot shut down a listening socket.
        if let Err(error) = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both) {
            tracing::warn!(%error, "failed to shut down NFS listener");
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("thread of NFS listener panicked");
            }
        }
        if !self.connections.wait_closed(STOP_TIMEOUT) {
            tracing::warn!("NFS connections have not ended in time");
        }
        close_cached(context);
    }
}

/// Binds the first configured port that is free. Port 0 means the recorded port of an earlier server, or else any free
/// port.
fn bind(settings: &Settings, state: &StateDir) -> Result<(TcpListener, u16), NfsError> {
    let mut failure = io::Error::from(io::ErrorKind::InvalidInput);
    for configured in &settings.ports {
        let last_port = state.last_port().filter(|_| *configured == 0);
        for port in last_port.into_iter().chain([*configured]) {
            match TcpListener::bind(SocketAddr::new(settings.address, port)) {
                Ok(socket) => return record_port(socket, *configured, settings, state),
                Err(error) => failure = error,
            }
        }
    }
    Err(NfsError::CannotListen { address: settings.address, source: failure })
}

/// Returns a bound socket and its port. If the configured port is 0, records the port for the next server.
fn record_port(
    socket: TcpListener,
    configured: u16,
    settings: &Settings,
    state: &StateDir,
) -> Result<(TcpListener, u16), NfsError> {
    let cannot_listen = |source| NfsError::CannotListen { address: settings.address, source };
    let address = socket.local_addr().map_err(cannot_listen)?;
    if configured == 0 {
        state.set_last_port(address.port())?;
    }
    Ok((socket, address.port()))
}

/// Registers the server with rpcbind. Returns false if that failed; the server works without the registration.
fn register(port: u16) -> bool {
    let result = rpcbind::register(rpcbind::RPCBIND, port);
    if let Err(error) = &result {
        tracing::warn!(%error, "failed to register NFS server with rpcbind");
    }
    result.is_ok()
}

/// Starts a thread.
fn spawn(name: &str, task: Task) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(task)
}

/// Accepts connections until the server is to stop.
fn accept_all(socket: &TcpListener, context: &Arc<Context>, connections: &Arc<Connections>) {
    loop {
        let accepted = socket.accept();
        if connections.is_stopping() {
            return;
        }
        match accepted {
            Ok((stream, client)) => accept(stream, client, context, connections),
            Err(error) => {
                tracing::warn!(%error, "failed to accept NFS connection");
                if connections.wait_stopping(ACCEPT_BACKOFF) {
                    return;
                }
            }
        }
    }
}

/// Starts to serve a connection, unless the client's address is not allowed or a limit is exceeded.
fn accept(stream: TcpStream, client: SocketAddr, context: &Arc<Context>, connections: &Arc<Connections>) {
    let refuse = |reason| context.observer.refused(Refusal { client, export: None, reason });
    if !context.allowed_clients.contains(client.ip()) {
        return refuse(RefusalReason::Address);
    }
    let Opened { connection, closed } = connections.open(stream, client, &context.limits);
    if let Some(client) = closed {
        let reason = RefusalReason::Connections;
        context.observer.refused(Refusal { client, export: None, reason });
    }
    let Some(open) = connection else {
        return refuse(RefusalReason::Connections);
    };
    let result = connection::start(Arc::clone(context), client, open);
    if let Err(error) = result {
        tracing::warn!(%error, %client, "failed to start NFS connection");
    }
}

/// Makes a sweep at every [`SWEEP_INTERVAL`] until the server is to stop.
fn sweep(context: &Context, connections: &Connections) {
    while !connections.wait_stopping(SWEEP_INTERVAL) {
        for volume in context.registry.volumes() {
            volume.close_idle();
        }
    }
}

/// Closes all cached descriptors; the roots of the exports stay open.
fn close_cached(context: &Context) {
    for volume in context.registry.volumes() {
        volume.close_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::NoObserver;

    /// Fails to start the thread of the sweeps, as at the limit of threads.
    fn spawn_one(name: &str, task: Task) -> io::Result<JoinHandle<()>> {
        if name == "nfs-sweep" { Err(io::ErrorKind::OutOfMemory.into()) } else { spawn(name, task) }
    }

    /// Regression test: the thread that accepts connections went on, and kept the port.
    #[test]
    fn a_failed_start_leaves_no_thread_and_no_port() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let mut settings = Settings::new(directory.path());
        settings.ports = vec![0];
        let context = Arc::new(Context::new(&settings, state.key().unwrap(), Arc::new(NoObserver)));
        let failed = Listener::start_with(&settings, &state, &context, spawn_one);
        assert!(matches!(failed, Err(NfsError::CannotStartThread(_))));
        assert_eq!(Arc::strong_count(&context), 1, "no thread runs");
        let port = state.last_port().unwrap();
        drop(TcpListener::bind((settings.address, port)).unwrap());
        Listener::start(&settings, &state, &context).unwrap().stop(&context);
    }
}
