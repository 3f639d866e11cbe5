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
mod crossing;
mod dns;
mod fence;
mod keeper;
mod link;
mod machine;
mod netlink;
mod resolver;
mod roads;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

pub use allow::{Allow, AllowError, Names};
pub use cidr::{Cidr, CidrError};
pub(crate) use keeper::start;
pub use link::lacks;

use crate::entry;
use crate::error::{HostError, Result};
use crate::holder::Holder;
use crate::process::Process;

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

/// What the helper is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    process: Process,
    egress: Egress,
}

/// Gives a sandbox that exists and has run nothing yet its network. `pid` is its first process.
pub fn connect(pid: i32, egress: &Egress) -> Result<()> {
    let pid = Pid::from_raw(pid).ok_or_else(|| HostError::Helper("the sandbox has ended".to_owned()))?;
    let order = Order { process: Process::of(pid)?, egress: egress.clone() };
    entry::ask("connect", &order, &[])
}

/// What the helper does.
pub(crate) fn run(order: &Order) -> Result<()> {
    let gone = || HostError::Helper("the sandbox has ended".to_owned());
    start(&order.process.pidfd().ok_or_else(gone)?, &order.egress, &Holder::Machine)
}
