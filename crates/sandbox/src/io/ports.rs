//! TCP ports of a running sandbox.

use std::time::Duration;

use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1;
use workspace_agent_protocol::v1::io_reply::Result as Reply;
use workspace_agent_protocol::v1::io_request::Operation;

use crate::error::Result;
use crate::io::channel::{Channel, ChannelReader, ChannelWriter};
use crate::io::files::unexpected_reply;
use crate::io::worker::ChannelKind;
use crate::scope::Scope;
use crate::service::Service;

/// Maximum time to list ports, or to connect to one.
const PORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of ports in a list.
const PORTS_MAX: usize = 1_024;
/// Maximum length of the address and of the program name of a port.
const TEXT_MAX: usize = 256;
/// Maximum number of bytes in a frame: a quarter of the flow-control window of a connection
/// (`ChannelKind::window`), so that several frames can be in flight.
const FRAME_MAX: usize = 16 << 10;

/// TCP port on which a process of the sandbox listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListeningPort {
    /// Number of the port.
    pub port: u16,
    /// IP address on which the process listens.
    pub address: String,
    /// PID inside the sandbox; `None` if it is not known.
    pub pid: Option<u32>,
    /// Name of the program; `None` if it is not known.
    pub program: Option<String>,
}

/// TCP connection to a port of the sandbox's loopback. Dropping both parts closes it.
#[derive(Debug)]
pub struct PortConnection {
    /// Bytes from the sandbox.
    pub reader: PortReader,
    /// Bytes to the sandbox.
    pub writer: PortWriter,
}

/// Reading part of a [`PortConnection`].
#[derive(Debug)]
pub struct PortReader(ChannelReader);

/// Writing part of a [`PortConnection`].
#[derive(Debug)]
pub struct PortWriter(ChannelWriter);

impl Service {
    /// Lists the TCP ports on which processes of a sandbox listen, by port.
    pub async fn list_ports(&self, scope: &Scope, sandbox: &str) -> Result<Vec<ListeningPort>> {
        let handle = self.find_running(scope, sandbox).await?;
        let operation = Operation::ListPorts(v1::ListPorts {});
        let reply = handle.io.call(&handle.guest, operation, PORT_TIMEOUT).await?;
        let Some(Reply::Ports(listed)) = reply.result else { return Err(unexpected_reply(&handle)) };
        Ok(listening_ports(listed.ports))
    }

    /// Connects to a TCP port of a sandbox's loopback. This needs no network in the sandbox.
    pub async fn connect_port(&self, scope: &Scope, sandbox: &str, port: u16) -> Result<PortConnection> {
        let handle = self.find_running(scope, sandbox).await?;
        let operation = Operation::OpenPort(v1::OpenPort { port: port.into() });
        let channel = handle
            .io
            .open(
                &handle.guest,
                self.transfer_budget(&handle),
                ChannelKind::Connection,
                operation,
                PORT_TIMEOUT,
            )
            .await?;
        let Channel { reader, writer, .. } = channel;
        Ok(PortConnection { reader: PortReader(reader), writer: PortWriter(writer) })
    }
}

/// Converts the ports that the I/O worker in the sandbox reported. Sorts them, because the worker is not trusted
/// to do so.
fn listening_ports(reported: Vec<v1::ListeningPort>) -> Vec<ListeningPort> {
    let mut ports: Vec<_> = reported.into_iter().take(PORTS_MAX).filter_map(listening_port).collect();
    ports.sort_by_key(|port| port.port);
    ports
}

/// Converts a port that the I/O worker in the sandbox reported; `None` if it is not valid.
fn listening_port(port: v1::ListeningPort) -> Option<ListeningPort> {
    let is_valid = port.address.len() <= TEXT_MAX && port.address.parse::<std::net::IpAddr>().is_ok();
    let program = Some(port.program).filter(|program| !program.is_empty());
    is_valid.then_some(ListeningPort {
        port: u16::try_from(port.port).ok()?,
        address: port.address,
        pid: Some(port.pid).filter(|pid| *pid > 0),
        program: program.map(|program| program.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect()),
    })
}

impl PortReader {
    /// Returns the next bytes; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.receive_without_timeout().await?.map(|frame| frame.data))
    }
}

impl PortWriter {
    /// Sends bytes, as fast as the sandbox accepts them.
    pub async fn send(&self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            self.0.send(data.split_to(data.len().min(FRAME_MAX))).await?;
        }
        Ok(())
    }

    /// Ends the stream to the sandbox.
    pub async fn end(&self) -> Result<()> {
        self.0.end().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_sorted_whatever_the_worker_sends() {
        let reported = |port| v1::ListeningPort {
            port,
            address: "127.0.0.1".to_owned(),
            ..v1::ListeningPort::default()
        };
        let ports = listening_ports([8080, 70_000, 22, 443].map(reported).into());
        assert_eq!(ports.iter().map(|port| port.port).collect::<Vec<_>>(), [22, 443, 8080]);
    }
}
