//! The network of a sandbox that may reach out: what it may reach, and who sees to that.
//!
//! Between the sandbox's network and the machine's stands a third, the **crossing**: a network namespace with two
//! links, one to the sandbox and one to the outside, and the fence, which is its routing table. Nothing of the
//! sandbox's runs there, so nothing inside can go round it: in its own namespace a program may bind to a link and
//! send past all routes, but what arrives at a crossing is routed or refused. The same routes stand in the sandbox's
//! namespace too, so that what is not allowed fails at once.
//!
//! The **keeper**, one process for each such sandbox, puts this up before anything of the user's runs, answers what
//! names mean, opens the fence for what an allowed name means, and shuts it for addresses that the machine gets
//! later. It outlives the server and ends with the sandbox. If it is killed, the crossing goes with it, and nothing
//! can be reached.

mod allow;
mod cidr;
#[cfg(target_os = "linux")]
mod connect;
#[cfg(target_os = "linux")]
mod crossing;
#[cfg(target_os = "linux")]
mod dns;
#[cfg(target_os = "linux")]
mod fence;
#[cfg(target_os = "linux")]
mod keeper;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
mod resolver;
#[cfg(target_os = "linux")]
mod roads;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

#[cfg(not(target_os = "linux"))]
pub use crate::elsewhere::egress::{connect, lacks};
pub use allow::{Allow, AllowError, Names};
pub use cidr::{Cidr, CidrError};
#[cfg(target_os = "linux")]
pub use connect::connect;
#[cfg(target_os = "linux")]
pub(crate) use connect::run;
#[cfg(target_os = "linux")]
pub(crate) use keeper::start;
#[cfg(target_os = "linux")]
pub use link::lacks;

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
