//! Settings of a server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::clients::ClientList;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address to listen on.
    pub address: IpAddr,
    /// Ports to listen on: the first that can be bound. Port 0 is the free port that was used last time, or
    /// any other.
    pub ports: Vec<u16>,
    /// Host name or address that clients are told to mount. `None` means the address to listen on, or the
    /// loopback address if that is unspecified.
    pub advertised_host: Option<String>,
    /// Directory of the server alone, for its key and the tables of file handles. It is created if it is missing.
    pub state_dir: PathBuf,
    /// Clients that may connect. Each export has a list of its own in addition.
    pub allowed_clients: ClientList,
    /// Registers the server with the rpcbind of this machine while it runs, if there is one, so that `showmount`
    /// finds it.
    pub register_with_rpcbind: bool,
    /// Limits.
    pub limits: Limits,
}

impl Settings {
    /// Returns the settings of a server for clients of this machine, on port 2049 or any other.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ports: vec![2049, 0],
            advertised_host: None,
            state_dir: state_dir.into(),
            allowed_clients: ClientList::any(),
            register_with_rpcbind: false,
            limits: Limits::default(),
        }
    }
}

/// Limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections. Others are closed at once.
    pub connections: usize,
    /// Maximum number of connections from one address.
    pub connections_per_client: usize,
    /// Maximum number of requests of one connection that are worked on at the same time. Others stay unread, so
    /// the client is slowed down. Each beyond the first needs a thread.
    pub requests_per_connection: usize,
    /// Maximum number of threads of all connections together, beyond the first of each. Without another thread, a
    /// connection has fewer requests worked on at the same time.
    pub extra_threads: usize,
    /// Maximum number of requests that have more than 64 KiB, or may have such a reply, and are held in memory at the
    /// same time: from before the request is read until the reply is sent. Each takes up to 2 MiB. Others wait, so
    /// their clients are slowed down. At least one.
    pub large_requests: usize,
    /// Maximum number of such requests from one address. At least one.
    pub large_requests_per_client: usize,
    /// Time after which a connection without requests is closed.
    pub idle_timeout: Duration,
    /// Time after which a connection is closed if no byte of a request that has begun, or of a reply, was
    /// transferred. It may be twice as long until that is noticed.
    pub transfer_timeout: Duration,
    /// Time after which a connection is closed if a request that has begun, or a reply, is not complete. It may be
    /// longer by twice `transfer_timeout` until that is noticed.
    pub transfer_total_timeout: Duration,
    /// Time for which an operation waits for its gate before the client is told to try again.
    pub gate_timeout: Duration,
    /// Maximum number of descriptors of directories and files that are kept open between operations. At most half of
    /// those that this process may have are used.
    pub open_files: usize,
    /// Maximum time for which the removal of an export waits for operations that have begun.
    pub drain_timeout: Duration,
    /// Maximum memory for the files that clients have handles for, in bytes, over all exports. Each takes about 430.
    /// An export may have an equal share of it, and at least 1 MiB, whatever others use. Beyond, the handles become stale
    /// that were not used for the longest time.
    pub table_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_client: 64,
            requests_per_connection: 8,
            extra_threads: 512,
            large_requests: 128,
            large_requests_per_client: 32,
            // Linux closes an idle connection after five minutes.
            idle_timeout: Duration::from_secs(360),
            transfer_timeout: Duration::from_secs(30),
            transfer_total_timeout: Duration::from_secs(120),
            gate_timeout: Duration::from_secs(5),
            open_files: 4096,
            drain_timeout: Duration::from_secs(10),
            table_bytes: 256 * 1024 * 1024,
        }
    }
}
