//! Lists of the client addresses that may use a server or an export.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

/// Length of the prefix that all IPv4 addresses have when they are mapped to IPv6.
const MAPPED_PREFIX_LEN: u8 = 96;

/// List of client addresses. The text form is `*` for every address, or networks and addresses separated by commas. The
/// empty text is the list without addresses, which excludes every client.
///
/// A network of IPv4-mapped IPv6 addresses, like `::ffff:10.0.0.0/104`, counts as the IPv4 network (`10.0.0.0/8`). An
/// IPv6 network with a prefix shorter than 96 bits, like `::/0`, contains no IPv4 address.
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
    /// Network of IPv4-mapped IPv6 addresses with a prefix shorter than 96 bits.
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

    /// Returns true if the list contains an address. An IPv4-mapped IPv6 address, as dual-stack sockets report it,
    /// counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match &self.0 {
            Clients::Any => true,
            Clients::Networks(networks) => {
                let address = address.to_canonical();
                networks.iter().any(|network| network.contains(&address))
            }
        }
    }

    /// Returns the list of the addresses that both lists contain.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (Clients::Networks(these), Clients::Networks(those)) = (&self.0, &other.0) else {
            return if self.0 == Clients::Any { other.clone() } else { self.clone() };
        };
        // Of two networks with a common address, one contains the other.
        let smaller = |this: &IpNet, that: &IpNet| match (this.contains(that), that.contains(this)) {
            (true, _) => Some(*that),
            (_, true) => Some(*this),
            _ => None,
        };
        let mut common: Vec<IpNet> =
            these.iter().flat_map(|this| those.iter().filter_map(|that| smaller(this, that))).collect();
        common.sort_unstable();
        common.dedup();
        Self(Clients::Networks(common))
    }

    /// Returns the list as clients of exports(5): networks, addresses, or `*`.
    pub(crate) fn patterns(&self) -> Vec<String> {
        match &self.0 {
            Clients::Any => vec!["*".to_owned()],
            Clients::Networks(networks) => networks.iter().map(pattern).collect(),
        }
    }

    /// Returns the networks as text, for the `groups` in the reply to EXPORT. There, an empty list means every client.
    /// A [`ClientList`] without addresses never gets there, because the reply has only exports that its client may
    /// mount.
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

/// Returns a network as text, and a network of one address as that address.
fn pattern(network: &IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() {
        network.addr().to_string()
    } else {
        network.to_string()
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

/// Returns true if the address of a network is an IPv4-mapped IPv6 address.
fn is_mapped(network: IpNet) -> bool {
    network.addr().to_canonical() != network.addr()
}

/// Converts a network of IPv4-mapped IPv6 addresses to the IPv4 network. Returns any other network unchanged.
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
    fn an_intersection_contains_what_both_lists_contain() {
        for (one, other, common) in [
            ("*", "*", "*"),
            ("*", "10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.0/8,fd00::/8", "10.1.0.0/16,10.2.0.7,192.0.2.0/24", "10.1.0.0/16,10.2.0.7/32"),
            ("10.0.0.0/8,10.1.0.0/16", "10.1.0.0/16", "10.1.0.0/16"),
            ("10.0.0.0/8", "192.0.2.0/24", ""),
            ("", "*", ""),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                assert_eq!(list(one).intersection(&list(other)).to_string(), common, "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_star_contains_every_address_and_an_empty_list_none() {
        assert!(list("*").contains(address("8.8.8.8")));
        assert!(!list("").contains(address("127.0.0.1")));
    }

    #[test]
    fn text_that_is_not_a_network_is_refused() {
        let refused = "10.0.0.0/8,example.org".parse::<ClientList>().unwrap_err();
        assert_eq!(refused, ParseClientListError::Unreadable { item: "example.org".to_owned() });
        assert!("10.0.0.0/33".parse::<ClientList>().is_err());
        assert!("10.0.0.1,*".parse::<ClientList>().is_err());
    }

    /// Regression test: such networks were compared with IPv4 addresses without a conversion, and contained none.
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
    fn displayed_lists_are_equal_to_the_parsed_text() {
        for text in ["*", "10.0.0.0/8,192.168.1.7/32"] {
            assert_eq!(list(text).to_string(), text);
        }
    }
}
