//! Lists of addresses from which clients may come.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// Length of the prefix that all IPv4 addresses have when they are mapped to IPv6.
const MAPPED_PREFIX_LEN: u8 = 96;

/// Addresses from which clients may come. The text form is `*` for every address, or networks and addresses separated
/// by commas. The empty text is the list without addresses, which excludes every client.
///
/// A network of IPv4 addresses that are mapped to IPv6, like `::ffff:10.0.0.0/104`, is the network of the IPv4
/// addresses. An IPv6 network with a shorter prefix, like `::/0`, contains no IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientList(Clients);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Clients {
    Any,
    Networks(Vec<IpNet>),
}

/// Text that is not a [`ClientList`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseClientListError {
    /// Part of the text that is neither an address nor a network.
    #[error("`{item}` is not an IP address, a network like 10.0.0.0/8, or `*`")]
    Unreadable {
        /// The part.
        item: String,
    },
    /// IPv4 address that is mapped to IPv6, with a prefix that is too short for one.
    #[error(
        "`{item}` is more than the IPv4 addresses: the prefix of a mapped network has at least 96 bits, as in \
         ::ffff:10.0.0.0/104, which is 10.0.0.0/8"
    )]
    PrefixTooShort {
        /// The part of the text.
        item: String,
    },
}

impl ClientList {
    /// Returns the list that contains every address.
    pub fn any() -> Self {
        Self(Clients::Any)
    }

    /// Returns the list of all addresses of some networks. Without networks it contains no address.
    pub fn networks(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(Clients::Networks(networks.into_iter().map(|it| to_canonical(it).trunc()).collect()))
    }

    /// Returns true if a client with this address is in the list. An IPv4 address that is mapped to IPv6, as
    /// sockets for both families report it, counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match &self.0 {
            Clients::Any => true,
            Clients::Networks(networks) => {
                let address = address.to_canonical();
                networks.iter().any(|network| network.contains(&address))
            }
        }
    }

    /// Returns the networks as text, for the `groups` in the reply to EXPORT. The reply lists only exports that its
    /// client may mount, so no groups mean every client, never a list without addresses.
    pub(crate) fn groups(&self) -> Vec<String> {
        match &self.0 {
            Clients::Any => Vec::new(),
            Clients::Networks(networks) => networks.iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for ClientList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Clients::Any => out.write_str("*"),
            Clients::Networks(_) => out.write_str(&self.groups().join(",")),
        }
    }
}

impl FromStr for ClientList {
    type Err = ParseClientListError;

    fn from_str(text: &str) -> Result<Self, ParseClientListError> {
        if text.trim() == "*" {
            return Ok(Self::any());
        }
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let networks: Result<Vec<IpNet>, _> = items.map(parse_network).collect();
        Ok(Self::networks(networks?))
    }
}

fn parse_network(item: &str) -> Result<IpNet, ParseClientListError> {
    let network = item.parse::<IpNet>().ok();
    let network = network.or_else(|| item.parse::<IpAddr>().ok().map(IpNet::from));
    let network = network.ok_or_else(|| ParseClientListError::Unreadable { item: item.to_owned() })?;
    if is_mapped(network) && network.prefix_len() < MAPPED_PREFIX_LEN {
        return Err(ParseClientListError::PrefixTooShort { item: item.to_owned() });
    }
    Ok(network)
}

/// Returns true if the address of a network is an IPv4 address that is mapped to IPv6.
fn is_mapped(network: IpNet) -> bool {
    network.addr().to_canonical() != network.addr()
}

/// Returns the IPv4 network that is mapped to an IPv6 network, and any other network as it is.
fn to_canonical(network: IpNet) -> IpNet {
    let prefix = network.prefix_len().checked_sub(MAPPED_PREFIX_LEN);
    match (network.addr().to_canonical(), prefix) {
        (IpAddr::V4(address), Some(prefix)) if is_mapped(network) => {
            Ipv4Net::new(address, prefix).map_or(network, IpNet::from)
        }
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> ClientList {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_list_contains_its_networks_and_addresses() {
        let clients = list("10.0.0.0/8, 192.168.1.7,fd00::/8");
        for inside in ["10.1.2.3", "192.168.1.7", "fd00::1", "::ffff:10.1.2.3"] {
            assert!(clients.contains(address(inside)), "{inside}");
        }
        for outside in ["11.0.0.1", "192.168.1.8", "fe80::1"] {
            assert!(!clients.contains(address(outside)), "{outside}");
        }
    }

    #[test]
    fn a_star_contains_everybody_and_an_empty_list_nobody() {
        assert!(list("*").contains(address("8.8.8.8")));
        assert!(!list("").contains(address("127.0.0.1")));
    }

    #[test]
    fn text_that_is_no_network_is_refused() {
        let refused = "10.0.0.0/8,example.org".parse::<ClientList>().unwrap_err();
        assert_eq!(refused, ParseClientListError::Unreadable { item: "example.org".to_owned() });
        assert!("10.0.0.0/33".parse::<ClientList>().is_err());
        assert!("10.0.0.1,*".parse::<ClientList>().is_err());
    }

    /// Such networks were compared with the IPv4 addresses of clients, and contained none.
    #[test]
    fn networks_of_mapped_addresses_contain_ipv4_clients() {
        let clients = list("::ffff:10.0.0.0/104,::ffff:192.168.1.7");
        for inside in ["10.1.2.3", "192.168.1.7", "::ffff:10.1.2.3"] {
            assert!(clients.contains(address(inside)), "{inside}");
        }
        for outside in ["11.0.0.1", "192.168.1.8", "::1"] {
            assert!(!clients.contains(address(outside)), "{outside}");
        }
        assert_eq!(clients.to_string(), "10.0.0.0/8,192.168.1.7/32");
        assert_eq!(list("::ffff:0.0.0.0/96").to_string(), "0.0.0.0/0");
        assert!(!list("::/0").contains(address("10.1.2.3")));
        assert!(list("::/0").contains(address("fd00::1")));
    }

    #[test]
    fn mapped_addresses_with_a_short_prefix_are_refused() {
        for item in ["::ffff:10.0.0.0/8", "::ffff:10.0.0.0/95"] {
            let refused = item.parse::<ClientList>().unwrap_err();
            assert_eq!(refused, ParseClientListError::PrefixTooShort { item: item.to_owned() });
        }
    }

    #[test]
    fn a_list_is_displayed_as_it_is_parsed() {
        for text in ["*", "10.0.0.0/8,192.168.1.7/32"] {
            assert_eq!(list(text).to_string(), text);
        }
    }
}
