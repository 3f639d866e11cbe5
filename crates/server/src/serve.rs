//! Listeners, connections and graceful shutdown.
//!
//! During a shutdown the server keeps listening and refuses new requests with `SHUTTING_DOWN`. Requests in progress have
//! `SHUTDOWN_TIMEOUT` to finish. Shortly before it, long-running work is cancelled, so that clients still get an error.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use workspace_context::projects::Daemon;

use crate::ambiguous_length::{FramedStream, Framing};
use crate::app::App;
use crate::automatic_merges::AutomaticMerges;
use crate::connections::{Connection, Connections, Limits, ReservedDescriptor};
use crate::followers::Followers;
use crate::health::metrics_router;
use crate::outdated_bases::OutdatedBases;
use crate::preview::dispatch::Dispatcher;
use crate::refused_changes::RefusedChangeReverts;
use crate::request_id::Peer;
use crate::route_group::RouteGroup;
use crate::router::router;
use crate::shutdown::Shutdown;
use crate::tls::{self, TlsError};
use crate::write_timeout::WriteTimeout;

/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the headers of the next request on an authenticated connection. Others are closed earlier: see
/// `connections.rs`.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a client to read more of its response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Unsent bytes that the kernel buffers for a connection (`TCP_NOTSENT_LOWAT`). Half of them must be sent within
/// [`WRITE_TIMEOUT`].
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;
/// Timeout for sending responses that are complete when the server stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Time before `SHUTDOWN_TIMEOUT` at which long-running work is cancelled; at most half of the timeout.
const CANCEL_BEFORE: Duration = Duration::from_secs(2);
/// Timeout for detaching from sandboxes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to accept when the process is out of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Number of consecutive failures to accept after which pending connections are refused.
const ACCEPT_FAILURES_MAX: u32 = 20;
/// Response on a connection above the connection limit.
const CONNECTION_LIMIT_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Error of listening on an address.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ServeError {
    #[error("cannot listen on {address}: {source}\nhint: {setting} sets another port")]
    Listen { address: SocketAddr, setting: &'static str, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot generate the OpenAPI document: {0}")]
    Document(#[from] serde_json::Error),
}

/// Address of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Address and port.
    pub socket: SocketAddr,
    /// True if the scheme is `https`.
    pub tls: bool,
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}://{}", if self.tls { "https" } else { "http" }, self.socket)
    }
}

/// Server that is bound to its ports and serves requests once [`Server::run`] is called.
pub struct Server {
    app: App,
    api: Listener,
    metrics: Option<Listener>,
}

struct Listener {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    handler: Handler,
    connections: Connections,
}

/// Handler of the requests of a listener.
#[derive(Clone)]
enum Handler {
    Api(Arc<Dispatcher>),
    Metrics(Router),
}

impl Handler {
    async fn handle(self, request: axum::extract::Request, framing: &Framing) -> Response {
        match self {
            Self::Api(dispatcher) => dispatcher.handle(request, framing).await,
            Self::Metrics(router) => {
                let Ok(response) = router.oneshot(request).await;
                response
            }
        }
    }
}

impl Server {
    /// Listens on the ports of the settings.
    pub async fn bind(app: App, groups: Vec<RouteGroup>) -> Result<Self, ServeError> {
        let settings = &app.settings;
        let tls = settings.tls_cert.as_ref().zip(settings.tls_key.as_ref());
        let tls = tls.map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        let connections = Connections::new(Limits::from_settings(settings));
        let listener = listen(settings.api_host, settings.api_port, "API_PORT").await?;
        let metrics = match settings.metrics_port {
            Some(port) => {
                let listener = listen(Ipv4Addr::LOCALHOST.into(), port, "METRICS_PORT").await?;
                let handler = Handler::Metrics(metrics_router(app.metrics.clone()));
                Some(Listener { listener, tls: None, handler, connections: connections.clone() })
            }
            None => None,
        };
        let dispatcher = Dispatcher::new(app.clone(), router(app.clone(), groups)?);
        let api = Listener { listener, tls, handler: Handler::Api(Arc::new(dispatcher)), connections };
        Ok(Self { app, api, metrics })
    }

    /// Returns the address of the API.
    pub fn address(&self) -> io::Result<Address> {
        Ok(Address { socket: self.api.listener.local_addr()?, tls: self.api.tls.is_some() })
    }

    /// Returns the address of `METRICS_PORT`; `None` if that is not set.
    pub fn metrics_address(&self) -> io::Result<Option<SocketAddr>> {
        self.metrics.as_ref().map(|metrics| metrics.listener.local_addr()).transpose()
    }

    /// Serves requests until the [`Shutdown`](crate::Shutdown) of the app begins and running requests have finished.
    pub async fn run(self) {
        // Begins after the shutdown of the app: first requests finish, then connections close.
        let connection_shutdown = Shutdown::new();
        let Self { app, api, metrics } = self;
        let merges = Daemon::new(app.projects.clone(), app.sandboxes.settings().server.clone());
        tokio::select! {
            () = merges.run() => {}
            () = Followers::new(&app).run() => {}
            () = OutdatedBases::new(&app).run() => {}
            () = RefusedChangeReverts::new(&app).run() => {}
            () = AutomaticMerges::new(&app).run() => {}
            () = accept(&api, &connection_shutdown) => {}
            () = accept_optional(metrics.as_ref(), &connection_shutdown) => {}
            () = drain(&app) => {}
        }
        drop((api, metrics));
        connection_shutdown.begin();
        if tokio::time::timeout(FLUSH_TIMEOUT, connection_shutdown.wait_until_idle()).await.is_err() {
            tracing::warn!("open connections closed at shutdown");
        }
        let close = async {
            app.nfs.stop().await;
            app.sandboxes.close().await;
            if let Err(error) = app.sandboxes.release_idle_resources().await {
                tracing::warn!(%error, "failed to stop helper processes of sandboxes");
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, close).await.is_err() {
            tracing::warn!("detaching from sandboxes timed out; the next start recovers them");
        }
        app.audit.close();
        app.catalog.close().await;
    }
}

/// Listens on a port. Errors name `setting`.
pub(crate) async fn listen(
    host: IpAddr,
    port: u16,
    setting: &'static str,
) -> Result<TcpListener, ServeError> {
    let address = SocketAddr::new(host, port);
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, setting, source })
}

/// Waits until the shutdown begins and requests in progress have finished, at most for `SHUTDOWN_TIMEOUT`.
async fn drain(app: &App) {
    app.shutdown.wait_until_begun().await;
    tracing::info!("shutdown started");
    let timeout = app.settings.shutdown_timeout;
    let before = CANCEL_BEFORE.min(timeout / 2);
    if tokio::time::timeout(timeout - before, app.shutdown.wait_until_idle()).await.is_ok() {
        app.shutdown.cancel().cancel();
        return;
    }
    app.shutdown.cancel().cancel();
    if tokio::time::timeout(before, app.shutdown.wait_until_idle()).await.is_err() {
        tracing::warn!("requests in progress aborted at shutdown");
    }
}

async fn accept_optional(listener: Option<&Listener>, shutdown: &Shutdown) {
    match listener {
        Some(listener) => accept(listener, shutdown).await,
        None => std::future::pending().await,
    }
}

async fn accept(listener: &Listener, shutdown: &Shutdown) {
    let (mut reserved, mut failures) = (ReservedDescriptor::new(), 0);
    loop {
        listener.connections.wait_for_closing().await;
        match listener.listener.accept().await {
            Ok((stream, peer)) => {
                failures = 0;
                let Some(connection) = listener.connections.register(peer.ip()) else {
                    tracing::debug!(%peer, "connection refused: connection limit reached");
                    if listener.tls.is_none() {
                        // The send buffer of a new connection has room for this. If not, the client only sees the close.
                        let _ = rustix::io::write(&stream, CONNECTION_LIMIT_RESPONSE);
                    }
                    continue;
                };
                let (tls, handler) = (listener.tls.clone(), listener.handler.clone());
                tokio::spawn(handle_connection(
                    stream,
                    peer.ip(),
                    tls,
                    handler,
                    connection,
                    shutdown.clone(),
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                listener.connections.close_idle_unauthenticated();
                failures += 1;
                if failures > ACCEPT_FAILURES_MAX {
                    refuse_one(&listener.listener, &mut reserved);
                }
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
}

/// Accepts and closes the oldest pending connection. Uses the reserved descriptor, because no other is available.
fn refuse_one(listener: &TcpListener, reserved: &mut ReservedDescriptor) {
    reserved.release_during(|| drop(listener.poll_accept(&mut Context::from_waker(Waker::noop()))));
}

async fn handle_connection(
    stream: TcpStream,
    peer: IpAddr,
    tls: Option<TlsAcceptor>,
    handler: Handler,
    connection: Connection,
    shutdown: Shutdown,
) {
    // The echo of a keystroke must not wait for more data. An error means that the connection is already closed.
    let _ = stream.set_nodelay(true);
    limit_unsent(&stream);
    let Some(tls) = tls else { return serve_http(stream, peer, handler, connection, &shutdown).await };
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => handshake,
        () = connection.close_requested() => return,
    };
    match handshake {
        Ok(Ok(stream)) => serve_http(stream, peer, handler, connection, &shutdown).await,
        Ok(Err(error)) => tracing::debug!(%error, %peer, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
    }
}

/// Limits the unsent bytes that the kernel buffers, so that the write timeout detects a slow client. Without the limit, the
/// kernel accepts megabytes at once, and then nothing for minutes.
fn limit_unsent(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    // An error means that the connection is already closed.
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

async fn serve_http<S>(stream: S, peer: IpAddr, handler: Handler, connection: Connection, shutdown: &Shutdown)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (request_connection, framing) = (connection.clone(), Framing::default());
    let stream = FramedStream::new(WriteTimeout::new(stream, WRITE_TIMEOUT), framing.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(request_connection.clone());
        let (handler, framing) = (handler.clone(), framing.clone());
        async move { Ok::<_, Infallible>(handler.handle(request.map(Body::new), &framing).await) }
    });
    let _running = shutdown.enter();
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = shutdown.wait_until_begun() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
        () = connection.close_requested() => return tracing::debug!(%peer, "idle connection closed"),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, %peer, "connection failed");
    }
}
