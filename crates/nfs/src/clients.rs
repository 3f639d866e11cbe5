//! Lists of addresses from which clients may come.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Addresses from which clients may come. The text form is `*` for every address, or networks and addresses separated
/// by commas. The empty text is the list without addresses, which excludes every client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientList(Clients);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Clients {
    Any,
    Networks(Vec<IpNet>),
}

/// Text that is not a [`ClientList`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{item}` is not an IP address, a network like 10.0.0.0/8, or `*`")]
pub struct ParseClientListError {
    /// Part of the text that could not be read.
    pub item: String,
}

impl ClientList {
    /// Returns the list that contains every address.
    pub fn any() -> Self {
        Self(Clients::Any)
    }

    /// Returns the list of all addresses of some networks. Without networks it contains no address.
    pub fn networks(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(Clients::Networks(networks.into_iter().map(|it| it.trunc()).collect()))
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
    network.ok_or_else(|| ParseClientListError { item: item.to_owned() })
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
        assert_eq!(refused.item, "example.org");
        assert!("10.0.0.0/33".parse::<ClientList>().is_err());
        assert!("10.0.0.1,*".parse::<ClientList>().is_err());
    }

    #[test]
    fn a_list_is_displayed_as_it_is_parsed() {
        for text in ["*", "10.0.0.0/8,192.168.1.7/32"] {
            assert_eq!(list(text).to_string(), text);
        }
    }
}
