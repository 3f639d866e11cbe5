//! Answers what names mean, for the programs of one sandbox.
//!
//! A name that is not allowed does not exist. (REFUSED would be more to the point, but many programs take it for a
//! failure that passes, and wait.) What an allowed name means is let through the fence before it is told.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::allow::{Allow, Names};
use super::cidr::Cidr;
use super::dns::{self, Outcome, Question};
use super::egress_policy::{Fence, Gate, Refused};
use super::host_addresses;
use super::routes::Roads;

/// As long as a packet may be.
const PACKET_MAX: usize = 4_096;
/// Questions that are looked into at one time; more in packets are dropped, more in connections wait.
const QUESTIONS: usize = 64;
const CONNECTIONS: usize = 16;
/// How long an answer may take, and how often it is asked for.
const ANSWER: Duration = Duration::from_secs(3);
const TRIES: usize = 2;
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// After a failure to accept or receive.
const PAUSE: Duration = Duration::from_millis(100);

/// What may be asked, and what comes of it.
#[derive(Debug)]
pub(super) struct Resolver {
    /// Names that are allowed; none if all are.
    names: Option<Vec<Names>>,
    /// Who is asked; none for whom the machine asks.
    dns: Option<SocketAddr>,
    pub(super) fence: Mutex<Fence>,
    pub(super) roads: Roads,
}

/// By which way a question came, and goes on.
#[derive(Debug, Clone, Copy)]
enum By {
    Packet,
    Connection,
}

impl Resolver {
    pub(super) fn new(allow: Option<&[Allow]>, dns: Option<SocketAddr>, fence: Fence, roads: Roads) -> Self {
        let name = |entry: &Allow| match entry {
            Allow::Names(names) => Some(names.clone()),
            Allow::Addresses(_) => None,
        };
        let names = allow.map(|list| list.iter().filter_map(name).collect());
        Self { names, dns, fence: Mutex::new(fence), roads }
    }

    /// Shuts the fence for what the machine has become.
    pub(super) fn shut(&self, own: Vec<Cidr>) -> io::Result<()> {
        let mut fence = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        fence.shut(own).into_iter().try_for_each(|range| self.roads.set(range, Gate::Shut))
    }

    fn allows(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|one| one.include(name)))
    }

    /// The answer to whatever came; none if there is none to give.
    async fn answer(&self, packet: &[u8], by: By) -> Option<Vec<u8>> {
        let question = match Question::read(packet) {
            Ok(question) => question,
            Err(outcome) => return dns::refuse(packet, outcome),
        };
        if !self.allows(&question.name) {
            return Some(question.answer(Outcome::NoName));
        }
        if question.has_no_answer() {
            return Some(question.answer(Outcome::Nothing));
        }
        match self.find_out(&question, by).await {
            Some(answer) => Some(answer),
            None => Some(question.answer(Outcome::Failed)),
        }
    }

    async fn find_out(&self, question: &Question, by: By) -> Option<Vec<u8>> {
        let to = self.dns.unwrap_or_else(host_addresses::nameserver);
        let answer = match by {
            By::Packet => ask_by_packet(to, question).await?,
            By::Connection => timeout(ANSWER, ask_by_connection(to, question)).await.ok()??,
        };
        if self.names.is_some() && question.kind == dns::A {
            self.open(question.addresses(&answer)?)?;
        }
        Some(answer)
    }

    /// Lets addresses through the fence; none if that is not possible. One that is denied stays shut, and the others
    /// are of use without it.
    fn open(&self, addresses: Vec<Ipv4Addr>) -> Option<()> {
        let mut fence = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            match fence.open(address) {
                Ok(true) => self.roads.set(Cidr::one(address), Gate::Open).ok()?,
                Ok(false) | Err(Refused::Denied) => {}
                Err(Refused::TooMany) => return None,
            }
        }
        Some(())
    }
}

/// Answers what comes in packets.
pub(super) async fn packets(socket: UdpSocket, resolver: Arc<Resolver>) {
    let (socket, questions) = (Arc::new(socket), Arc::new(Semaphore::new(QUESTIONS)));
    let mut buffer = vec![0; PACKET_MAX];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(permit) = questions.clone().try_acquire_owned() else { continue };
        let (packet, socket, resolver) = (buffer[..length].to_vec(), socket.clone(), resolver.clone());
        tokio::spawn(async move {
            if let Some(answer) = resolver.answer(&packet, By::Packet).await {
                // Who asked may be gone.
                let _ = socket.send_to(&answer, from).await;
            }
            drop(permit);
        });
    }
}

/// Answers what comes in connections.
pub(super) async fn connections(listener: TcpListener, resolver: Arc<Resolver>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let resolver = resolver.clone();
        tokio::spawn(async move {
            // However it ends, whoever asked sees that it did.
            let _ = connection(stream, &resolver).await;
            drop(permit);
        });
    }
}

async fn connection(mut stream: TcpStream, resolver: &Resolver) -> io::Result<()> {
    loop {
        let packet = timeout(SILENCE, receive(&mut stream)).await??;
        let Some(answer) = resolver.answer(&packet, By::Connection).await else { return Ok(()) };
        timeout(SILENCE, send(&mut stream, &answer)).await??;
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

/// Each time from another port and under another number, so that nobody else can answer.
async fn ask_by_packet(to: SocketAddr, question: &Question) -> Option<Vec<u8>> {
    for _ in 0..TRIES {
        if let Ok(Some(answer)) = timeout(ANSWER, ask_once(to, question)).await {
            return Some(answer);
        }
    }
    None
}

async fn ask_once(to: SocketAddr, question: &Question) -> Option<Vec<u8>> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let (socket, id) = (UdpSocket::bind(any).await.ok()?, number()?);
    socket.connect(to).await.ok()?;
    socket.send(&question.ask(id)).await.ok()?;
    let mut buffer = vec![0; PACKET_MAX];
    loop {
        let length = socket.recv(&mut buffer).await.ok()?;
        if let Some(answer) = question.pass_on(id, buffer[..length].to_vec()) {
            return Some(answer);
        }
    }
}

async fn ask_by_connection(to: SocketAddr, question: &Question) -> Option<Vec<u8>> {
    let (mut stream, id) = (TcpStream::connect(to).await.ok()?, number()?);
    send(&mut stream, &question.ask(id)).await.ok()?;
    question.pass_on(id, receive(&mut stream).await.ok()?)
}

fn number() -> Option<[u8; 2]> {
    let mut bytes = [0; 2];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).ok()?;
    (filled == bytes.len()).then_some(bytes)
}
