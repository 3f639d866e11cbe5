//! Links and routes of a router and of its sandbox.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd as _;

use ipnet::Ipv4Net;

use super::egress::Uplink;
use super::egress_policy::RangeRule;
use super::netlink::{AddressScope, Hop, LinkChange, Netlink, Table};
use super::router::Router;
use crate::error::{Context as _, HostError, Result};

/// Name of the link to the sandbox, in the router.
const SANDBOX_LINK: &str = "inside";
/// Name of the link to the uplink, in the router.
pub(super) const UPLINK_LINK: &str = "outside";
/// Name of the link to the router, in the sandbox.
const GUEST_LINK: &str = "eth0";

/// Network between sandbox, router and uplink. It is not used on the internet: it was reserved for 6to4
/// relays.
pub(super) const ROUTER_NETWORK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 88, 99, 0), 24);
/// Address of the router on the link to the sandbox.
const ROUTER_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 88, 99, 1);
/// Address of the uplink program; `slirp4netns` always uses the second address of its network.
pub(super) const UPLINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 88, 99, 2);
/// Address of the sandbox, unless another runtime assigned one.
pub(super) const SANDBOX_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 88, 99, 100);
/// MTU: the maximum of the uplink programs, because few large packets are faster than many small ones.
pub(super) const MTU: u32 = 65_520;

/// Network namespace whose routes enforce the policy.
#[derive(Debug)]
struct RoutedNamespace {
    /// Netlink socket in the namespace, which changes its routes.
    netlink: Netlink,
    /// Next hop to allowed addresses.
    gateway: Hop,
}

/// Routes that enforce the policy: in the router, where nothing can bypass them, and in the sandbox, where
/// denied connections fail immediately.
#[derive(Debug)]
pub(super) struct Routes {
    router: RoutedNamespace,
    sandbox: RoutedNamespace,
}

/// Links a sandbox to its router. There is no route to the uplink yet.
pub(super) fn connect_sandbox(router: &Router, uplink: &Uplink) -> Result<()> {
    let address = match uplink {
        Uplink::UserMode => SANDBOX_ADDRESS,
        Uplink::Link { name, address, .. } => {
            take_link(router, name)?;
            *address
        }
    };
    let added = router.sandbox.add_pair(GUEST_LINK, SANDBOX_LINK, router.namespace.as_fd());
    added.context("add a link to the sandbox")?;
    let mtu = (*uplink == Uplink::UserMode).then_some(MTU);
    let change = LinkChange { up: true, forwarding: true, mtu, ..LinkChange::default() };
    // A gateway of a real network may not answer ARP requests from an address that it does not know.
    let scope = if *uplink == Uplink::UserMode { AddressScope::Universe } else { AddressScope::Host };
    let link = set_up_link(&router.netlink, SANDBOX_LINK, (ROUTER_ADDRESS, scope), &change)?;
    let route = router.netlink.set_route(Table::Main, Ipv4Net::from(address), Hop::Link(link));
    route.context("set a route to the sandbox")?;
    let change = LinkChange { up: true, mtu, ..LinkChange::default() };
    set_up_link(&router.sandbox, GUEST_LINK, (address, AddressScope::Universe), &change).map(|_| ())
}

/// Moves the link that another runtime created for the sandbox into the router.
fn take_link(router: &Router, name: &str) -> Result<()> {
    let link = link_index(&router.sandbox, name)?;
    let change = LinkChange {
        name: Some(UPLINK_LINK),
        namespace: Some(router.namespace.as_fd()),
        ..LinkChange::default()
    };
    router.sandbox.change_link(link, &change).context("move the link of the sandbox into the router")
}

/// Disables IPv6 on a link, assigns an address and applies `change`. Returns the index of the link.
fn set_up_link(
    netlink: &Netlink,
    name: &str,
    (address, scope): (Ipv4Addr, AddressScope),
    change: &LinkChange<'_>,
) -> Result<u32> {
    let link = link_index(netlink, name)?;
    netlink.disable_ipv6(link).context(format!("disable IPv6 on the link `{name}`"))?;
    netlink.add_address(link, address, scope).context(format!("add an address to the link `{name}`"))?;
    netlink.change_link(link, change).context(format!("bring up the link `{name}`"))?;
    Ok(link)
}

fn link_index(netlink: &Netlink, name: &str) -> Result<u32> {
    let found = netlink.link_index(name).context(format!("find the link `{name}`"))?;
    found.ok_or_else(|| HostError::other(format!("there is no link `{name}`")))
}

impl Routes {
    /// Links the router to the uplink. There is no route to it yet.
    pub(super) fn connect_uplink(sandbox: Netlink, router: Netlink, uplink: &Uplink) -> Result<Self> {
        let (gateway, mtu) = match uplink {
            Uplink::UserMode => (UPLINK_ADDRESS, Some(MTU)),
            Uplink::Link { gateway, .. } => (*gateway, None),
        };
        let link = link_index(&router, UPLINK_LINK)?;
        router.disable_ipv6(link).context("disable IPv6 on the uplink")?;
        // The uplink sends ARP requests for the address of the sandbox, which lies behind the router.
        let change = LinkChange { up: true, forwarding: true, proxy_arp: true, mtu, ..LinkChange::default() };
        router.change_link(link, &change).context("bring up the uplink")?;
        router.disable_proxy_delay(link).context("disable the proxy ARP delay of the uplink")?;
        let router = RoutedNamespace { gateway: Hop::Gateway { address: gateway, link }, netlink: router };
        let link = link_index(&sandbox, GUEST_LINK)?;
        let sandbox =
            RoutedNamespace { gateway: Hop::Gateway { address: ROUTER_ADDRESS, link }, netlink: sandbox };
        Ok(Self { router, sandbox })
    }

    /// Sets the rule on a range, in both namespaces.
    pub(super) fn set(&self, range: Ipv4Net, rule: RangeRule) -> io::Result<()> {
        for namespace in [&self.router, &self.sandbox] {
            let hop = match rule {
                RangeRule::Allow => namespace.gateway,
                RangeRule::Deny => Hop::Unreachable,
            };
            namespace.netlink.set_route(Table::Main, range, hop)?;
        }
        Ok(())
    }

    /// Allows one TCP port of the host, regardless of the rule on its address.
    pub(super) fn allow_port(&self, destination: SocketAddrV4) -> io::Result<()> {
        for namespace in [&self.router, &self.sandbox] {
            namespace.netlink.set_route(
                Table::AllowedPorts,
                Ipv4Net::from(*destination.ip()),
                namespace.gateway,
            )?;
            namespace.netlink.add_allowed_port_rule(destination)?;
        }
        Ok(())
    }
}
