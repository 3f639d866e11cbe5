//! Settings of a server and limits of its resources.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::clients::ClientList;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address to listen on.
    pub address: IpAddr,
    /// Ports to try in this order; the server listens on the first that can be bound. Port 0 means the free port that
    /// was used last time, or any other if that is taken.
    pub ports: Vec<u16>,
    /// Host name or address that clients are told to mount. `None` means `address`, or the loopback address if
    /// `address` is unspecified (`0.0.0.0` or `::`).
    pub advertised_host: Option<String>,
    /// Directory with the state of the server: its key, and the tables of file handles. No other program may write to
    /// it. It is created if it is missing.
    pub state_dir: PathBuf,
    /// Clients that may connect. In addition, each export has a list of its own.
    pub allowed_clients: ClientList,
    /// True to register the server with the rpcbind of this machine while it listens, so that `showmount` finds it. A
    /// failed registration is only logged.
    pub register_with_rpcbind: bool,
    /// Limits of resources and times.
    pub limits: Limits,
}

impl Settings {
    /// Returns the settings of a server for clients on this machine: on port 2049, or any free port if that is taken.
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
    /// Maximum number of connections. At the limit, a new connection takes the place of the oldest connection of the
    /// export with the most; it is closed at once if no export has more than one.
    pub connections: usize,
    /// Maximum number of connections from one address. At the limit, a new connection takes the place of another from
    /// this address, chosen by the same rule.
    pub connections_per_client: usize,
    /// Maximum number of requests of one connection that are executed at the same time. Further ones stay unread in the
    /// socket, which slows down the client. Each request beyond the first needs another thread.
    pub requests_per_connection: usize,
    /// Maximum number of threads of all connections together, not counting the first thread of each. A connection that
    /// gets no further thread executes fewer requests at the same time.
    pub extra_threads: usize,
    /// Maximum number of large requests that are held in memory at the same time, from before the request is read until
    /// the reply is sent. A request is large if it has more than 64 KiB or its reply may have more. Each takes up to
    /// 2 MiB. Further ones wait, which slows down their clients. A value of 0 counts as 1.
    pub large_requests: usize,
    /// Maximum number of large requests from one address. A value of 0 counts as 1.
    pub large_requests_per_client: usize,
    /// Time after which a connection without requests is closed.
    pub idle_timeout: Duration,
    /// Time after which a connection is closed if no byte of a partly received request, or of a reply, was transferred.
    /// The server may notice that only after twice this time.
    pub transfer_timeout: Duration,
    /// Time after which a connection is closed if a partly received request, or a reply, is not complete. The server
    /// may notice that later, by up to twice `transfer_timeout`.
    pub transfer_total_timeout: Duration,
    /// Maximum time for which an operation waits for the [`Gate`](crate::Gate) of its export. After that the client is
    /// told to try again later.
    pub gate_timeout: Duration,
    /// Maximum number of descriptors of directories and files that are kept open between operations. The server takes
    /// at most half of the descriptors that this process may have.
    pub open_files: usize,
    /// Maximum time for which the removal of an export, or the replacement of its root, waits for running operations.
    pub drain_timeout: Duration,
    /// Maximum memory for the tables of file handles of all exports together, in bytes. Each file that clients have a
    /// handle for takes about 430 bytes. Each export may use an equal share, and at least 1 MiB, even if the others use
    /// all the rest. When the memory is used up, the handles that were not used for the longest time become stale.
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
