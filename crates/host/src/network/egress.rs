//! Egress configuration: what a sandbox may reach, and through which uplink.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::allow::AllowRule;

/// Content of `/etc/resolv.conf` in a sandbox with egress.
pub const RESOLV_CONF: &str = "nameserver 127.0.0.1\n";

/// Egress configuration of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// Allow list. `None` allows everything that is not denied.
    pub allow: Option<Vec<AllowRule>>,
    /// Denied ranges. A more specific entry of the allow list wins.
    pub deny: Vec<Ipv4Net>,
    /// TCP ports of the host that are allowed although its addresses are denied.
    pub except: Vec<SocketAddrV4>,
    /// Upstream DNS server. `None` uses that of the host.
    pub dns: Option<SocketAddr>,
    /// Uplink of the router.
    pub uplink: Uplink,
}

/// Uplink: how packets leave the router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Uplink {
    /// User-mode networking: a program opens connections on behalf of the sandbox, `pasta` or else
    /// `slirp4netns`.
    UserMode,
    /// The link that another runtime gave the sandbox. It is moved into the router.
    Link {
        /// Name of the link, in the sandbox.
        name: String,
        /// Address of the sandbox in the network of the link.
        address: Ipv4Addr,
        /// Gateway of that network.
        gateway: Ipv4Addr,
        /// Range of that network. Its other members are denied.
        network: Ipv4Net,
    },
}
