//! Links, addresses and routes of a network namespace over netlink (`rtnetlink(7)`).
//!
//! A socket stays bound to the namespace in which it was created, even if the process enters another.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use ipnet::Ipv4Net;
use linux_raw_sys::net::{IPV4_DEVCONF_FORWARDING, IPV4_DEVCONF_PROXY_ARP};
use linux_raw_sys::netlink::in6_addr_gen_mode::IN6_ADDR_GEN_MODE_NONE;
use linux_raw_sys::netlink::{
    FR_ACT_TO_TBL, FRA_DPORT_RANGE, FRA_DST, FRA_IP_PROTO, IFLA_INET_CONF, IFLA_INET6_ADDR_GEN_MODE,
    NDTA_NAME, NDTA_PARMS, NDTPA_IFINDEX, NDTPA_PROXY_DELAY, RTNH_F_ONLINK,
};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// Maximum size of a packet from the kernel.
const REPLY_MAX: usize = 64 << 10;
/// Alignment of messages and attributes.
const ALIGNMENT: usize = 4;
/// Size of `struct nlmsghdr`.
const HEADER_LEN: usize = size_of::<libc::nlmsghdr>();

/// Attribute of a veth link with its peer, which no crate defines.
const VETH_INFO_PEER: u16 = 1;

/// Netlink socket of a network namespace.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

/// Changes to a link. Fields that are `None` or false stay as they are.
#[derive(Debug, Default)]
pub(super) struct LinkChange<'a> {
    /// New name.
    pub(super) name: Option<&'a str>,
    /// Network namespace to move the link to.
    pub(super) namespace: Option<BorrowedFd<'a>>,
    /// Forward packets that arrive over the link.
    pub(super) forwarding: bool,
    /// Answer ARP requests for addresses that are routed (proxy ARP).
    pub(super) proxy_arp: bool,
    /// Maximum transmission unit, in bytes.
    pub(super) mtu: Option<u32>,
    /// Bring the link up.
    pub(super) up: bool,
}

/// Next hop of a route.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hop {
    /// Through a gateway.
    Gateway { address: Ipv4Addr, link: u32 },
    /// Directly over a link.
    Link(u32),
    /// Reject with "host unreachable".
    Unreachable,
}

/// Scope of an address.
#[derive(Debug, Clone, Copy)]
pub(super) enum AddressScope {
    Universe,
    /// The kernel does not use the address as the source of ARP requests.
    Host,
}

/// Routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// Main table of the kernel, in which every destination is looked up.
    Main,
    /// Table of the TCP ports of the host that are allowed although its addresses are denied (`Egress::except`). A rule
    /// for each port selects this table, before the main one with the egress policy.
    AllowedPorts,
}

impl Table {
    /// Returns the id by which the kernel knows the table.
    fn id(self) -> u8 {
        match self {
            Self::Main => libc::RT_TABLE_MAIN,
            Self::AllowedPorts => 100,
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Netlink {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Netlink> for OwnedFd {
    fn from(netlink: Netlink) -> Self {
        netlink.0
    }
}

impl Netlink {
    /// Opens a socket in the network namespace of this process.
    pub(super) fn open_in_current_namespace() -> io::Result<Self> {
        Self::open(0, SocketFlags::CLOEXEC)
    }

    /// Opens a socket that becomes readable when IPv4 addresses of this network namespace change.
    pub(super) fn address_changes() -> io::Result<OwnedFd> {
        let group = 1 << (libc::RTNLGRP_IPV4_IFADDR - 1);
        Ok(Self::open(group, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?.0)
    }

    /// Opens a socket that receives the notifications of multicast groups (a bit mask; 0 for none).
    fn open(groups: u32, flags: SocketFlags) -> io::Result<Self> {
        // The default protocol of netlink sockets is `NETLINK_ROUTE`.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self(socket))
    }

    /// Returns the index of a link, or `None` if there is no link with this name.
    pub(super) fn link_index(&self, name: &str) -> io::Result<Option<u32>> {
        let mut message = Message::new(libc::RTM_GETLINK, 0, &link_header(0, LinkState::Unchanged));
        message.text(libc::IFLA_IFNAME, name);
        match self.request(message) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
            // `ifi_index` of `struct ifinfomsg`.
            Ok(replies) => Ok(replies.first().and_then(|(_, body)| u32_at(body, 4))),
        }
    }

    /// Adds a veth pair: `name` in this namespace and `peer` in the other one.
    pub(super) fn add_pair(&self, name: &str, peer: &str, namespace: BorrowedFd<'_>) -> io::Result<()> {
        let mut peer_info = link_header(0, LinkState::Unchanged).to_vec();
        attribute(&mut peer_info, libc::IFLA_IFNAME, &with_nul(peer));
        attribute(&mut peer_info, libc::IFLA_NET_NS_FD, &(namespace.as_raw_fd() as u32).to_ne_bytes());
        let mut data = Vec::new();
        attribute(&mut data, VETH_INFO_PEER, &peer_info);
        let mut info = Vec::new();
        attribute(&mut info, libc::IFLA_INFO_KIND, b"veth\0");
        attribute(&mut info, libc::IFLA_INFO_DATA, &data);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut message = Message::new(libc::RTM_NEWLINK, flags, &link_header(0, LinkState::Unchanged));
        message.text(libc::IFLA_IFNAME, name);
        message.attribute(libc::IFLA_LINKINFO, &info);
        self.execute(message)
    }

    /// Applies changes to a link.
    pub(super) fn change_link(&self, link: u32, change: &LinkChange<'_>) -> io::Result<()> {
        let state = if change.up { LinkState::Up } else { LinkState::Unchanged };
        let mut message = Message::new(libc::RTM_NEWLINK, 0, &link_header(link, state));
        if let Some(name) = change.name {
            message.text(libc::IFLA_IFNAME, name);
        }
        if let Some(namespace) = change.namespace {
            message.attribute(libc::IFLA_NET_NS_FD, &(namespace.as_raw_fd() as u32).to_ne_bytes());
        }
        if let Some(mtu) = change.mtu {
            message.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        }
        if change.forwarding || change.proxy_arp {
            let mut values = Vec::new();
            let settings =
                [(IPV4_DEVCONF_FORWARDING, change.forwarding), (IPV4_DEVCONF_PROXY_ARP, change.proxy_arp)];
            for (setting, _) in settings.into_iter().filter(|(_, enable)| *enable) {
                attribute(&mut values, setting as u16, &1_u32.to_ne_bytes());
            }
            let mut conf = Vec::new();
            attribute(&mut conf, IFLA_INET_CONF as u16, &values);
            message.attribute(libc::IFLA_AF_SPEC, &family(libc::AF_INET, &conf));
        }
        self.execute(message)
    }

    /// Prevents IPv6 addresses on a link, link-local ones included.
    pub(super) fn disable_ipv6(&self, link: u32) -> io::Result<()> {
        let mut mode = Vec::new();
        attribute(&mut mode, IFLA_INET6_ADDR_GEN_MODE as u16, &[IN6_ADDR_GEN_MODE_NONE as u8]);
        let mut message = Message::new(libc::RTM_NEWLINK, 0, &link_header(link, LinkState::Unchanged));
        message.attribute(libc::IFLA_AF_SPEC, &family(libc::AF_INET6, &mode));
        match self.execute(message) {
            // A kernel without IPv6 assigns no such address.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
            result => result,
        }
    }

    /// Disables the delay of proxy ARP on a link. By default it lets other hosts answer first.
    pub(super) fn disable_proxy_delay(&self, link: u32) -> io::Result<()> {
        let mut values = Vec::new();
        attribute(&mut values, NDTPA_IFINDEX as u16, &link.to_ne_bytes());
        attribute(&mut values, NDTPA_PROXY_DELAY as u16, &0_u64.to_ne_bytes());
        let mut message = Message::new(libc::RTM_SETNEIGHTBL, 0, &[libc::AF_INET as u8, 0, 0, 0]);
        message.text(NDTA_NAME as u16, "arp_cache");
        message.attribute(NDTA_PARMS as u16, &values);
        self.execute(message)
    }

    /// Adds an address to a link.
    pub(super) fn add_address(&self, link: u32, address: Ipv4Addr, scope: AddressScope) -> io::Result<()> {
        let scope = match scope {
            AddressScope::Universe => libc::RT_SCOPE_UNIVERSE,
            AddressScope::Host => libc::RT_SCOPE_HOST,
        };
        // `struct ifaddrmsg`.
        let mut header = [libc::AF_INET as u8, 32, 0, scope, 0, 0, 0, 0];
        header[4..].copy_from_slice(&link.to_ne_bytes());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut message = Message::new(libc::RTM_NEWADDR, flags, &header);
        message.attribute(libc::IFA_LOCAL, &address.octets());
        message.attribute(libc::IFA_ADDRESS, &address.octets());
        self.execute(message)
    }

    /// Sets the route to a range. Replaces the route to exactly that range.
    pub(super) fn set_route(&self, table: Table, range: Ipv4Net, hop: Hop) -> io::Result<()> {
        let (kind, scope, flags) = match hop {
            // The gateway is reachable over the link although no route leads to it.
            Hop::Gateway { .. } => (libc::RTN_UNICAST, libc::RT_SCOPE_UNIVERSE, RTNH_F_ONLINK),
            Hop::Link(_) => (libc::RTN_UNICAST, libc::RT_SCOPE_LINK, 0),
            Hop::Unreachable => (libc::RTN_UNREACHABLE, libc::RT_SCOPE_UNIVERSE, 0),
        };
        // `struct rtmsg`.
        let protocol = libc::RTPROT_STATIC;
        let mut header =
            vec![libc::AF_INET as u8, range.prefix_len(), 0, 0, table.id(), protocol, scope, kind];
        header.extend(flags.to_ne_bytes());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut message = Message::new(libc::RTM_NEWROUTE, flags, &header);
        message.attribute(libc::RTA_DST, &range.addr().octets());
        if let Hop::Gateway { address, .. } = hop {
            message.attribute(libc::RTA_GATEWAY, &address.octets());
        }
        if let Hop::Gateway { link, .. } | Hop::Link(link) = hop {
            message.attribute(libc::RTA_OIF, &link.to_ne_bytes());
        }
        self.execute(message)
    }

    /// Adds a rule that looks up TCP packets to this address and port in [`Table::AllowedPorts`] first.
    pub(super) fn add_allowed_port_rule(&self, destination: std::net::SocketAddrV4) -> io::Result<()> {
        // `struct fib_rule_hdr`.
        let header =
            [libc::AF_INET as u8, 32, 0, 0, Table::AllowedPorts.id(), 0, 0, FR_ACT_TO_TBL as u8, 0, 0, 0, 0];
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut message = Message::new(libc::RTM_NEWRULE, flags, &header);
        let port = destination.port().to_ne_bytes();
        message.attribute(FRA_DST as u16, &destination.ip().octets());
        message.attribute(FRA_IP_PROTO as u16, &[libc::IPPROTO_TCP as u8]);
        message.attribute(FRA_DPORT_RANGE as u16, &[port, port].concat());
        self.execute(message)
    }

    /// Returns the ranges that are local to this network namespace, or broadcast on one of its links.
    pub(super) fn local_ranges(&self) -> io::Result<Vec<Ipv4Net>> {
        // Without this, a host with a full routing table would return all of it.
        self.enable_strict_check()?;
        // `struct rtmsg`, which filters by family and table.
        let mut header = [0; 12];
        (header[0], header[4]) = (libc::AF_INET as u8, libc::RT_TABLE_LOCAL);
        let routes = self.request(Message::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &header))?;
        let mut ranges: Vec<Ipv4Net> =
            routes.iter().filter_map(|(kind, body)| local_range(*kind, body)).collect();
        // The addresses of links in a VRF are in the tables of that VRF.
        let header = [libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0];
        let addresses = self.request(Message::new(libc::RTM_GETADDR, libc::NLM_F_DUMP, &header))?;
        ranges.extend(addresses.iter().filter_map(|(kind, body)| local_address(*kind, body)));
        Ok(ranges)
    }

    /// Makes the kernel apply filters in dump requests.
    fn enable_strict_check(&self) -> io::Result<()> {
        let on: libc::c_int = 1;
        // SAFETY: an open socket, and an integer that outlives the call.
        let done = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_GET_STRICT_CHK,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn execute(&self, message: Message) -> io::Result<()> {
        self.request(message).map(|_| ())
    }

    /// Sends a request. Returns type and body of every message of the reply.
    fn request(&self, message: Message) -> io::Result<Vec<(u16, Vec<u8>)>> {
        let bytes = message.finish();
        send(&self.0, &bytes, SendFlags::empty())?;
        let (mut replies, mut buffer) = (Vec::new(), vec![0; REPLY_MAX]);
        loop {
            let (_, length) = recv(&self.0, buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            let mut rest = buffer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
            while let Some((kind, body, next)) = first_message(rest) {
                rest = next;
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(replies),
                    libc::NLMSG_ERROR => {
                        let code = u32_at(body, 0).ok_or(io::ErrorKind::InvalidData)? as i32;
                        return if code == 0 {
                            Ok(replies)
                        } else {
                            Err(io::Error::from_raw_os_error(-code))
                        };
                    }
                    _ => replies.push((kind, body.to_vec())),
                }
            }
        }
    }
}

/// Returns the range of a message about a route to this host or to a broadcast address.
fn local_range(kind: u16, body: &[u8]) -> Option<Ipv4Net> {
    let (header, attributes) = body.split_at_checked(12)?;
    let local_types = [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST];
    if kind != libc::RTM_NEWROUTE || !local_types.contains(&header[7]) {
        return None;
    }
    let address =
        find_attribute(attributes, libc::RTA_DST).and_then(address).unwrap_or(Ipv4Addr::UNSPECIFIED);
    Ipv4Net::new(address, header[1]).ok().map(|range| range.trunc())
}

/// Returns the address in an address message.
fn local_address(kind: u16, body: &[u8]) -> Option<Ipv4Net> {
    let (_, attributes) = body.split_at_checked(8)?;
    let found = find_attribute(attributes, libc::IFA_LOCAL).filter(|_| kind == libc::RTM_NEWADDR)?;
    address(found).map(Ipv4Net::from)
}

fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from)
}

/// Returns the value of the attribute with this type.
fn find_attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((head, _)) = attributes.split_at_checked(4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(ALIGNMENT)..)?;
    }
    None
}

/// Splits off the first message: its type, its body, and the rest.
fn first_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let body = bytes.get(HEADER_LEN..length)?;
    let next = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    Some((kind, body, next))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let bytes = bytes.get(offset..offset + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn with_nul(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// State that a request sets for a link.
#[derive(Clone, Copy)]
enum LinkState {
    Unchanged,
    Up,
}

/// Builds a `struct ifinfomsg`.
fn link_header(link: u32, state: LinkState) -> [u8; 16] {
    let flag = match state {
        LinkState::Unchanged => 0,
        LinkState::Up => libc::IFF_UP as u32,
    };
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header[8..12].copy_from_slice(&flag.to_ne_bytes());
    header[12..].copy_from_slice(&flag.to_ne_bytes());
    header
}

/// Builds the value of `IFLA_AF_SPEC` for one address family.
fn family(family: libc::c_int, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    attribute(&mut bytes, family as u16, value);
    bytes
}

/// Appends an attribute (`struct rtattr`) with its padding.
fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend(((value.len() + 4) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

/// Request to the kernel.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: libc::c_int, header: &[u8]) -> Self {
        // A dump ends with its own message; everything else needs an acknowledgement.
        let dump = flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
        let flags = flags | libc::NLM_F_REQUEST | if dump { 0 } else { libc::NLM_F_ACK };
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags as u16).to_ne_bytes());
        bytes.resize(HEADER_LEN, 0);
        bytes.extend(header);
        Self(bytes)
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        attribute(&mut self.0, kind, value);
    }

    fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, &with_nul(text));
    }

    fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() as u32).to_ne_bytes();
        self.0[..4].copy_from_slice(&length);
        self.0
    }
}
