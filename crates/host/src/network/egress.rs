//! What a sandbox may reach, and by which uplink.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use super::allow::Allow;
use super::cidr::Cidr;

/// What programs inside find in `/etc/resolv.conf`.
pub const RESOLV_CONF: &str = "nameserver 127.0.0.1\n";

/// What a sandbox may reach, and by which way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// All that it may reach; none for everything that is not denied.
    pub allow: Option<Vec<Allow>>,
    /// What it may not reach, unless something more specific is allowed.
    pub deny: Vec<Cidr>,
    /// Ports of the machine that it may reach all the same, over TCP.
    pub except: Vec<SocketAddrV4>,
    /// Who is asked what names mean; none for whom the machine asks.
    pub dns: Option<SocketAddr>,
    /// The way out.
    pub way: Way,
}

/// How packets leave the crossing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Through a program that opens connections for the sandbox: `pasta`, or else `slirp4netns`.
    Program,
    /// Through the link that the sandbox was given by somebody else, and that is taken from it.
    Link {
        /// Its name, inside.
        name: String,
        /// The sandbox's address in that network.
        address: Ipv4Addr,
        /// Who passes on what leaves that network.
        gateway: Ipv4Addr,
        /// That network: what the sandbox has for neighbours there is denied.
        network: Cidr,
    },
}
