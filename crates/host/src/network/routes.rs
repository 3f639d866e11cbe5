//! The links and routes of a crossing and of its sandbox.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd as _;

use super::cidr::Cidr;
use super::egress::Way;
use super::egress_policy::Gate;
use super::netlink::{Hop, LinkChange, Netlink, Table};
use super::router::Crossing;
use crate::error::{Doing as _, HostError, Result};

/// The link to the sandbox, in the crossing.
const TO_SANDBOX: &str = "inside";
/// The link to the world, in the crossing.
pub(super) const TO_WORLD: &str = "outside";
/// The link to the crossing, in the sandbox.
const OF_SANDBOX: &str = "eth0";

/// Of these addresses no machine has one: they were those of 6to4 relays.
pub(super) const NETWORK: Cidr = Cidr::new(Ipv4Addr::new(192, 88, 99, 0), 24);
/// The crossing's, to the sandbox.
const CROSSING: Ipv4Addr = Ipv4Addr::new(192, 88, 99, 1);
/// That of the program that is the way out; `slirp4netns` takes the second of its network.
pub(super) const PROGRAM: Ipv4Addr = Ipv4Addr::new(192, 88, 99, 2);
/// The sandbox's, where nobody else gave it one.
pub(super) const SANDBOX: Ipv4Addr = Ipv4Addr::new(192, 88, 99, 100);
/// The largest packets that the programs take: few large ones are quicker than many small ones.
pub(super) const LARGEST: u32 = 65_520;

/// One of two places in which the fence stands.
#[derive(Debug)]
struct Side {
    netlink: Netlink,
    gateway: Hop,
}

/// Where the fence stands: in the crossing, where nobody can go round it, and in the sandbox, where it fails at once.
#[derive(Debug)]
pub(super) struct Roads {
    crossing: Side,
    sandbox: Side,
}

/// Connects a sandbox with its crossing; no route leads anywhere yet.
pub(super) fn to_sandbox(crossing: &Crossing, way: &Way) -> Result<()> {
    let address = match way {
        Way::Program => SANDBOX,
        Way::Link { name, address, .. } => {
            take_link(crossing, name)?;
            *address
        }
    };
    let made = crossing.inside.add_pair(OF_SANDBOX, TO_SANDBOX, crossing.namespace.as_fd());
    made.doing("make a link to the sandbox")?;
    let mtu = (*way == Way::Program).then_some(LARGEST);
    let change = LinkChange { up: true, forwards: true, mtu, ..LinkChange::default() };
    // A gateway of a real network may not answer an address that it does not know there.
    let only = *way != Way::Program;
    let link = prepare(&crossing.here, TO_SANDBOX, (CROSSING, only), &change)?;
    let route = crossing.here.set_route(Table::Main, Cidr::one(address), Hop::Link(link));
    route.doing("set a route to the sandbox")?;
    let change = LinkChange { up: true, mtu, ..LinkChange::default() };
    prepare(&crossing.inside, OF_SANDBOX, (address, false), &change).map(|_| ())
}

/// Takes the link that somebody gave the sandbox into the crossing.
fn take_link(crossing: &Crossing, name: &str) -> Result<()> {
    let link = number(&crossing.inside, name)?;
    let taken = LinkChange {
        name: Some(TO_WORLD),
        namespace: Some(crossing.namespace.as_fd()),
        ..LinkChange::default()
    };
    crossing.inside.change_link(link, &taken).doing("take the sandbox's link into the crossing")
}

/// Gives a link its address and lets it be used.
fn prepare(
    netlink: &Netlink,
    name: &str,
    (address, only): (Ipv4Addr, bool),
    change: &LinkChange<'_>,
) -> Result<u32> {
    let link = number(netlink, name)?;
    netlink.without_ipv6(link).doing(format!("keep IPv6 from the link `{name}`"))?;
    netlink.add_address(link, address, only).doing(format!("give the link `{name}` an address"))?;
    netlink.change_link(link, change).doing(format!("start the link `{name}`"))?;
    Ok(link)
}

fn number(netlink: &Netlink, name: &str) -> Result<u32> {
    let found = netlink.link(name).doing(format!("look for the link `{name}`"))?;
    found.ok_or_else(|| HostError::other(format!("there is no link `{name}`")))
}

impl Roads {
    /// Connects a crossing, which has its links, with the world; no route leads there yet.
    pub(super) fn to_world(inside: Netlink, here: Netlink, way: &Way) -> Result<Self> {
        let (gateway, mtu) = match way {
            Way::Program => (PROGRAM, Some(LARGEST)),
            Way::Link { gateway, .. } => (*gateway, None),
        };
        let link = number(&here, TO_WORLD)?;
        here.without_ipv6(link).doing("keep IPv6 from the link to the world")?;
        // Whoever is there asks for the sandbox's address, which lies behind the crossing.
        let change = LinkChange { up: true, forwards: true, answers: true, mtu, ..LinkChange::default() };
        here.change_link(link, &change).doing("start the link to the world")?;
        here.without_delay(link).doing("let the link to the world answer at once")?;
        let crossing = Side { gateway: Hop::Gateway { address: gateway, link }, netlink: here };
        let link = number(&inside, OF_SANDBOX)?;
        let sandbox = Side { gateway: Hop::Gateway { address: CROSSING, link }, netlink: inside };
        Ok(Self { crossing, sandbox })
    }

    /// Opens or shuts the fence for a range.
    pub(super) fn set(&self, range: Cidr, gate: Gate) -> io::Result<()> {
        for side in [&self.crossing, &self.sandbox] {
            let hop = match gate {
                Gate::Open => side.gateway,
                Gate::Shut => Hop::Unreachable,
            };
            side.netlink.set_route(Table::Main, range, hop)?;
        }
        Ok(())
    }

    /// Opens the fence for one port, whatever it says of its address.
    pub(super) fn except(&self, to: SocketAddrV4) -> io::Result<()> {
        for side in [&self.crossing, &self.sandbox] {
            side.netlink.set_route(Table::Exceptions, Cidr::one(*to.ip()), side.gateway)?;
            side.netlink.add_exception(to)?;
        }
        Ok(())
    }
}
