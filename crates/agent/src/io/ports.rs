//! TCP ports of the sandbox.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::{IoFailureKind, IoReply, ListeningPort, ListeningPorts};

use super::channel::{ReceivedFrames, RequestHandle};
use super::failure::{AtPath as _, Failure, NO_PATH, Result};

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of a read, and of the window: the bytes that the server may send before they are written to the connection.
const BUFFER_SIZE: usize = 64 << 10;
/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// Maximum number of ports in a reply.
const PORTS_MAX: usize = 1_024;

/// Lists the TCP ports on which processes listen, by port. Of processes of other users, only the port is known.
pub(crate) fn list() -> Result<ListeningPorts> {
    let mut listening = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(file) {
            Ok(text) => listening.extend(text.lines().skip(1).filter_map(parse)),
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).at(file.as_bytes()),
        }
    }
    listening.sort_unstable_by_key(|socket: &Listening| (socket.port, socket.address));
    listening.truncate(PORTS_MAX);
    let owners = socket_owners();
    let describe = |socket: Listening| {
        let pid = owners.get(&socket.inode).copied().unwrap_or_default();
        let program = if pid == 0 { String::new() } else { program_name(pid) };
        ListeningPort { port: socket.port.into(), address: socket.address.to_string(), pid, program }
    };
    Ok(ListeningPorts { ports: listening.into_iter().map(describe).collect() })
}

/// Listening socket.
#[derive(Debug, PartialEq, Eq)]
struct Listening {
    port: u16,
    address: IpAddr,
    inode: u64,
}

/// Parses a line of `/proc/net/tcp` or `tcp6`; `None` if the socket does not listen.
fn parse(line: &str) -> Option<Listening> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, inode) = (*fields.get(1)?, *fields.get(3)?, *fields.get(9)?);
    if state != LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Listening { port, address: parse_address(address)?, inode: inode.parse().ok()? })
}

/// Parses an address: 32-bit words in the byte order of the machine.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let word = text.get(8 * index..8 * index + 8)?;
        u32::from_str_radix(word, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?).into())
        }
        _ => None,
    }
}

/// Returns the PIDs of the processes that have sockets, by the inode of the socket.
fn socket_owners() -> HashMap<u64, u32> {
    let mut owners = HashMap::new();
    let Ok(processes) = fs::read_dir("/proc") else { return owners };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // Not readable for processes of other users.
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let link = fs::read_link(descriptor.path()).ok();
            let inode = link.as_ref().and_then(|link| {
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
            });
            if let Some(inode) = inode {
                owners.entry(inode).or_insert(pid);
            }
        }
    }
    owners
}

fn program_name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// Connects to a port of the loopback, and forwards bytes until both directions have ended.
pub(crate) async fn connect(handle: RequestHandle, mut frames: ReceivedFrames, port: u32) {
    if let Err(failure) = forward(&handle, &mut frames, port).await {
        handle.fail(failure).await;
    }
}

async fn forward(handle: &RequestHandle, frames: &mut ReceivedFrames, port: u32) -> Result<()> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| Failure::invalid(NO_PATH, "a port is a number from 1 to 65535"))?;
    let stream = open(port).await?;
    // Disables Nagle's algorithm, which would delay small messages.
    stream.set_nodelay(true).at(NO_PATH)?;
    handle.reply(IoReply { window: BUFFER_SIZE as u64, ..IoReply::default() }).await?;
    let (reader, writer) = stream.into_split();
    tokio::try_join!(send(handle, reader), receive(handle, frames, writer)).map(drop)
}

/// Connects to a port of the loopback, by IPv4 or else IPv6.
async fn open(port: u16) -> Result<TcpStream> {
    let addresses: [SocketAddr; 2] = [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&addresses[..])).await {
        Ok(Ok(stream)) => Ok(stream),
        _ => {
            let message = format!("nothing accepts connections on port {port}");
            Err(Failure::new(IoFailureKind::NotListening, NO_PATH, message))
        }
    }
}

thread_local! {
    /// Buffer of all connections: an idle one takes no memory. Only one is read at a time, since the worker has one
    /// thread for them.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_SIZE]);
}

/// Sends the bytes of a connection to the server.
async fn send(handle: &RequestHandle, reader: OwnedReadHalf) -> Result<()> {
    loop {
        reader.readable().await.at(NO_PATH)?;
        let read: io::Result<Bytes> = READ_BUFFER.with_borrow_mut(|buffer| {
            let read = reader.try_read(buffer)?;
            Ok(Bytes::copy_from_slice(&buffer[..read]))
        });
        match read {
            Ok(data) if data.is_empty() => return handle.end().await,
            Ok(data) => handle.send_data(data).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).at(NO_PATH),
        }
    }
}

/// Writes the bytes of the server to the connection.
async fn receive(
    handle: &RequestHandle,
    frames: &mut ReceivedFrames,
    mut writer: OwnedWriteHalf,
) -> Result<()> {
    while let Some(frame) = frames.receive().await? {
        writer.write_all(&frame.data).await.at(NO_PATH)?;
        handle.grant(frame.data.len()).await?;
    }
    writer.shutdown().await.at(NO_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_parsed() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 4711 1"
            )
        };
        let v4 = u32::from_ne_bytes([127, 0, 0, 1]);
        let parsed = parse(&line(&format!("{v4:08X}:1F90"), LISTEN)).unwrap();
        assert_eq!(parsed, Listening { port: 8080, address: Ipv4Addr::LOCALHOST.into(), inode: 4711 });
        assert!(parse(&line(&format!("{v4:08X}:1F90"), "01")).is_none());
        let last = u32::from_ne_bytes([0, 0, 0, 1]);
        let v6 = format!("{}{last:08X}:0050", "0".repeat(24));
        assert_eq!(parse(&line(&v6, LISTEN)).unwrap().address, IpAddr::V6(Ipv6Addr::LOCALHOST));
        for damaged in ["", "0: x:y 0 0A 0 0 0 0 0 1", "0: 0000:1F90 0 0A 0 0 0 0 0 1"] {
            assert!(parse(damaged).is_none(), "{damaged}");
        }
    }

    #[test]
    fn own_listener_is_listed_with_its_program() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = u32::from(listener.local_addr().unwrap().port());
        let listed = list().unwrap().ports;
        let found = listed.iter().find(|listed| listed.port == port).unwrap();
        assert_eq!((found.address.as_str(), found.pid), ("127.0.0.1", std::process::id()));
        assert!(!found.program.is_empty());
    }
}
