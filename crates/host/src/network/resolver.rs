//! DNS resolver for the programs of one sandbox.
//!
//! The response for a name that is not allowed is NXDOMAIN. (REFUSED would be more accurate, but many
//! programs take it for a temporary failure, and wait.) The addresses of an allowed name are allowed in the
//! egress policy before the response is sent.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::allow::{AllowRule, HostPattern};
use super::dns::{self, Question, ResponseCode};
use super::egress_policy::{EgressPolicy, RangeRule, Refused};
use super::host_addresses;
use super::routes::Routes;

/// Maximum size of a UDP packet, in bytes.
const PACKET_MAX: usize = 4_096;
/// Maximum number of queries over UDP, and of TCP connections, at a time. Further UDP queries are dropped;
/// further connections wait.
const QUERIES_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 16;
/// Timeout of one query to the upstream server, and number of attempts.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
const QUERY_ATTEMPTS: usize = 2;
/// Time after which an idle TCP connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failure to accept or receive.
const RETRY_BACKOFF: Duration = Duration::from_millis(100);

/// Resolver of one sandbox.
#[derive(Debug)]
pub(super) struct Resolver {
    /// Allowed names. `None` if all are allowed.
    names: Option<Vec<HostPattern>>,
    /// Upstream server. `None` for that of the host.
    upstream: Option<SocketAddr>,
    pub(super) policy: Mutex<EgressPolicy>,
    pub(super) routes: Routes,
}

/// Transport of a query, used upstream as well.
#[derive(Debug, Clone, Copy)]
enum Transport {
    Udp,
    Tcp,
}

impl Resolver {
    pub(super) fn new(
        allow: Option<&[AllowRule]>,
        upstream: Option<SocketAddr>,
        policy: EgressPolicy,
        routes: Routes,
    ) -> Self {
        let pattern = |rule: &AllowRule| match rule {
            AllowRule::Host(pattern) => Some(pattern.clone()),
            AllowRule::Addresses(_) => None,
        };
        let names = allow.map(|list| list.iter().filter_map(pattern).collect());
        Self { names, upstream, policy: Mutex::new(policy), routes }
    }

    /// Denies further ranges of the host, in the policy and by routes.
    pub(super) fn deny(&self, host_ranges: Vec<Ipv4Net>) -> io::Result<()> {
        let mut policy = self.policy.lock();
        policy.deny(host_ranges).into_iter().try_for_each(|range| self.routes.set(range, RangeRule::Deny))
    }

    fn allows(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|pattern| pattern.matches(name)))
    }

    /// Returns the response to a packet, or `None` if nothing is to be sent.
    async fn respond(&self, packet: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let question = match Question::parse(packet) {
            Ok(question) => question,
            Err(code) => return dns::refuse(packet, code),
        };
        if !self.allows(&question.name) {
            return Some(question.empty_response(ResponseCode::NxDomain));
        }
        if question.has_empty_answer() {
            return Some(question.empty_response(ResponseCode::NoError));
        }
        match self.resolve(&question, transport).await {
            Some(response) => Some(response),
            None => Some(question.empty_response(ResponseCode::ServFail)),
        }
    }

    async fn resolve(&self, question: &Question, transport: Transport) -> Option<Vec<u8>> {
        let upstream = self.upstream.unwrap_or_else(host_addresses::nameserver);
        let response = match transport {
            Transport::Udp => query_udp(upstream, question).await?,
            Transport::Tcp => timeout(QUERY_TIMEOUT, query_tcp(upstream, question)).await.ok()??,
        };
        if self.names.is_some() && question.record_type == dns::A {
            self.allow(question.addresses(&response)?)?;
        }
        Some(response)
    }

    /// Allows addresses. Returns `None` if a route cannot be set or there are too many. Addresses that the
    /// policy denies are skipped, because the others are of use without them.
    fn allow(&self, addresses: Vec<Ipv4Addr>) -> Option<()> {
        let mut policy = self.policy.lock();
        for address in addresses {
            match policy.allow(address) {
                Ok(true) => {
                    self.routes.set(Ipv4Net::from(address), RangeRule::Allow).ok()?;
                    policy.set_routed(address);
                }
                Ok(false) | Err(Refused::Denied) => {}
                Err(Refused::TooMany) => return None,
            }
        }
        Some(())
    }
}

/// Serves DNS over UDP.
pub(super) async fn serve_udp(socket: UdpSocket, resolver: Arc<Resolver>) {
    let (socket, permits) = (Arc::new(socket), Arc::new(Semaphore::new(QUERIES_MAX)));
    let mut buffer = vec![0; PACKET_MAX];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(RETRY_BACKOFF).await;
            continue;
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let (packet, socket, resolver) = (buffer[..length].to_vec(), socket.clone(), resolver.clone());
        tokio::spawn(async move {
            if let Some(response) = resolver.respond(&packet, Transport::Udp).await {
                // The client may have exited.
                let _ = socket.send_to(&response, from).await;
            }
            drop(permit);
        });
    }
}

/// Serves DNS over TCP.
pub(super) async fn serve_tcp(listener: TcpListener, resolver: Arc<Resolver>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY_BACKOFF).await;
            continue;
        };
        let resolver = resolver.clone();
        tokio::spawn(async move {
            // The client sees that the connection is closed.
            let _ = serve_connection(stream, &resolver).await;
            drop(permit);
        });
    }
}

async fn serve_connection(mut stream: TcpStream, resolver: &Resolver) -> io::Result<()> {
    loop {
        let packet = timeout(IDLE_TIMEOUT, receive(&mut stream)).await??;
        let Some(response) = resolver.respond(&packet, Transport::Tcp).await else { return Ok(()) };
        timeout(IDLE_TIMEOUT, send(&mut stream, &response)).await??;
    }
}

async fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await?;
    Ok(packet)
}

async fn send(stream: &mut TcpStream, packet: &[u8]) -> io::Result<()> {
    let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), packet].concat()).await
}

/// Queries the upstream server over UDP. Each attempt has another source port and id, so that responses
/// cannot be forged.
async fn query_udp(upstream: SocketAddr, question: &Question) -> Option<Vec<u8>> {
    for _ in 0..QUERY_ATTEMPTS {
        if let Ok(Some(response)) = timeout(QUERY_TIMEOUT, query_udp_once(upstream, question)).await {
            return Some(response);
        }
    }
    None
}

async fn query_udp_once(upstream: SocketAddr, question: &Question) -> Option<Vec<u8>> {
    let any: SocketAddr = match upstream {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let (socket, id) = (UdpSocket::bind(any).await.ok()?, random_id()?);
    socket.connect(upstream).await.ok()?;
    socket.send(&question.upstream_query(id)).await.ok()?;
    let mut buffer = vec![0; PACKET_MAX];
    loop {
        let length = socket.recv(&mut buffer).await.ok()?;
        if let Some(response) = question.translate_response(id, buffer[..length].to_vec()) {
            return Some(response);
        }
    }
}

async fn query_tcp(upstream: SocketAddr, question: &Question) -> Option<Vec<u8>> {
    let (mut stream, id) = (TcpStream::connect(upstream).await.ok()?, random_id()?);
    send(&mut stream, &question.upstream_query(id)).await.ok()?;
    question.translate_response(id, receive(&mut stream).await.ok()?)
}

fn random_id() -> Option<[u8; 2]> {
    let mut bytes = [0; 2];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (filled == bytes.len()).then_some(bytes)
}
