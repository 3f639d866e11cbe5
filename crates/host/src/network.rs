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
pub(crate) mod egress;

#[cfg(target_os = "linux")]
pub(crate) mod connect;
#[cfg(target_os = "linux")]
mod dns;
#[cfg(target_os = "linux")]
mod egress_policy;
#[cfg(target_os = "linux")]
mod host_addresses;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
pub(crate) mod network_daemon;
#[cfg(target_os = "linux")]
mod resolver;
#[cfg(target_os = "linux")]
mod router;
#[cfg(target_os = "linux")]
mod routes;
#[cfg(target_os = "linux")]
mod uplink;

pub use allow::{Allow, AllowError, Names};
pub use cidr::{Cidr, CidrError};
pub use egress::{Egress, RESOLV_CONF, Way};

#[cfg(target_os = "linux")]
pub use connect::connect;
#[cfg(target_os = "linux")]
pub use uplink::lacks;

#[cfg(not(target_os = "linux"))]
pub use crate::unsupported::network::{connect, lacks};
