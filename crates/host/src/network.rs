//! Network of a sandbox with egress: what it may reach, and how that is enforced.
//!
//! Between the network namespace of the sandbox and that of the host lies a third one, the **router**. It has
//! two links, one to the sandbox and one to the uplink, and its routing table enforces the egress policy. No
//! process of the sandbox runs there, so nothing inside can bypass the policy: in its own namespace a program
//! may bind to a link and ignore all routes, but packets that arrive at the router are routed or rejected.
//! The namespace of the sandbox has the same routes, so that connections that are not allowed fail
//! immediately.
//!
//! The **network daemon**, one process per sandbox with egress, sets this up before any program of the user
//! runs. It resolves names, allows the addresses of allowed names, and denies addresses that the host gets
//! later. It outlives the server and exits with the sandbox. If it is killed, the router namespace disappears
//! with it, and nothing can be reached.

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
mod traffic;
#[cfg(target_os = "linux")]
mod uplink;

pub use allow::{AllowError, AllowRule, HostPattern};
pub use cidr::{CidrError, parse_cidr};
pub use egress::{Egress, RESOLV_CONF, Uplink};

#[cfg(target_os = "linux")]
pub use connect::connect;
#[cfg(target_os = "linux")]
pub use traffic::traffic;
#[cfg(target_os = "linux")]
pub use uplink::unavailable_reason;

#[cfg(not(target_os = "linux"))]
pub use crate::unsupported::network::{connect, unavailable_reason};
