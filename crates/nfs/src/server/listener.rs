//! Listener of a server: accepts connections within the limits.

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

/// Pause after a failure to accept, such as for want of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Maximum time for which a stop waits for connections.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two looks for descriptors that nobody uses any more.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Running listener.
pub(super) struct Listener {
    socket: TcpListener,
    port: u16,
    connections: Arc<Connections>,
    threads: Vec<JoinHandle<()>>,
    is_registered: bool,
}

impl Listener {
    pub(super) fn start(
        settings: &Settings,
        state: &StateDir,
        context: &Arc<Context>,
    ) -> Result<Self, NfsError> {
        let (socket, port) = bind(settings, state)?;
        context.large_requests.reopen();
        let connections = Arc::new(Connections::default());
        let accepting = {
            let socket = socket.try_clone().map_err(NfsError::CannotStartThread)?;
            let (context, connections) = (Arc::clone(context), Arc::clone(&connections));
            spawn("nfs-accept", move || accept_all(&socket, &context, &connections))?
        };
        let sweeping = {
            let (context, connections) = (Arc::clone(context), Arc::clone(&connections));
            spawn("nfs-sweep", move || sweep(&context, &connections))?
        };
        let is_registered = settings.register_with_rpcbind && register(port);
        tracing::info!(address = %settings.address, port, is_registered, "NFS server started");
        Ok(Self { socket, port, connections, threads: vec![accepting, sweeping], is_registered })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn connection_count(&self) -> usize {
        self.connections.count()
    }

    /// Closes the listener and all connections, and waits for their threads.
    pub(super) fn stop(self, context: &Context) {
        if self.is_registered
            && let Err(error) = rpcbind::unregister(rpcbind::RPCBIND)
        {
            tracing::warn!(%error, "failed to take back the registration with rpcbind");
        }
        // Before a connection that ends passes its permit on to another.
        context.large_requests.close();
        self.connections.stop();
        // Wakes the thread that accepts; `std` has no call for it.
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
        close_unused(context);
        tracing::info!(port = self.port, "NFS server stopped");
    }
}

fn bind(settings: &Settings, state: &StateDir) -> Result<(TcpListener, u16), NfsError> {
    let mut failure = io::Error::from(io::ErrorKind::InvalidInput);
    for configured in &settings.ports {
        let last = state.last_port().filter(|_| *configured == 0);
        for port in last.into_iter().chain([*configured]) {
            match TcpListener::bind(SocketAddr::new(settings.address, port)) {
                Ok(socket) => return bound(socket, *configured, state),
                Err(error) => failure = error,
            }
        }
    }
    Err(NfsError::CannotListen { address: settings.address, source: failure })
}

fn bound(socket: TcpListener, configured: u16, state: &StateDir) -> Result<(TcpListener, u16), NfsError> {
    let address = socket.local_addr().map_err(NfsError::CannotStartThread)?;
    if configured == 0 {
        state.set_last_port(address.port())?;
    }
    Ok((socket, address.port()))
}

/// Registers the server with rpcbind. The server works without it as well.
fn register(port: u16) -> bool {
    let result = rpcbind::register(rpcbind::RPCBIND, port);
    if let Err(error) = &result {
        tracing::warn!(%error, "failed to register NFS server with rpcbind");
    }
    result.is_ok()
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, NfsError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(NfsError::CannotStartThread)
}

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

/// Closes descriptors that were not used for a while, and those of removed files.
fn sweep(context: &Context, connections: &Connections) {
    while !connections.wait_stopping(SWEEP_INTERVAL) {
        for volume in context.registry.volumes() {
            volume.close_idle();
        }
    }
}

fn close_unused(context: &Context) {
    for volume in context.registry.volumes() {
        volume.close_all();
    }
}
