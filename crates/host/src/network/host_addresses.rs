//! Addresses and DNS server of the host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::Ipv4Net;

use super::netlink::Netlink;

const DNS_PORT: u16 = 53;

/// Returns all local ranges: the addresses of the links, and the ranges of local routes.
pub(super) fn addresses() -> io::Result<Vec<Ipv4Net>> {
    Netlink::open_in_current_namespace()?.local_ranges()
}

/// Returns the first nameserver in `/etc/resolv.conf`, or else that on loopback.
pub(super) fn nameserver() -> SocketAddr {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    first_nameserver(&text).unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, DNS_PORT)))
}

fn first_nameserver(text: &str) -> Option<SocketAddr> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address: IpAddr =
            words.next().filter(|word| *word == "nameserver").and(words.next())?.parse().ok()?;
        Some(SocketAddr::from((address, DNS_PORT)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nameserver_is_used() {
        let text =
            "# nameserver 1.1.1.1\nsearch a\nnameserver nonsense\nnameserver  10.0.0.2\nnameserver ::1\n";
        assert_eq!(first_nameserver(text), Some("10.0.0.2:53".parse().unwrap()));
        assert_eq!(first_nameserver("nameserver ::1"), Some("[::1]:53".parse().unwrap()));
        assert_eq!(first_nameserver("nameserver\n"), None);
    }

    #[test]
    fn loopback_is_local() {
        let own = addresses().unwrap();
        assert!(own.iter().any(|range| range.contains(&Ipv4Addr::LOCALHOST)), "{own:?}");
    }
}
