//! What the machine itself is: its addresses, and whom it asks what names mean.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::cidr::Cidr;
use super::netlink::Netlink;

const PORT: u16 = 53;

/// Everything that leads to this machine: the addresses of its links, and all else that its routes keep here.
pub(super) fn addresses() -> io::Result<Vec<Cidr>> {
    Netlink::here()?.own()
}

/// Whom the machine asks what names mean: the first that its `resolv.conf` names, or else itself.
pub(super) fn nameserver() -> SocketAddr {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    first_nameserver(&text).unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))
}

fn first_nameserver(text: &str) -> Option<SocketAddr> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address: IpAddr =
            words.next().filter(|word| *word == "nameserver").and(words.next())?.parse().ok()?;
        Some(SocketAddr::from((address, PORT)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nameserver_is_asked() {
        let text =
            "# nameserver 1.1.1.1\nsearch a\nnameserver nonsense\nnameserver  10.0.0.2\nnameserver ::1\n";
        assert_eq!(first_nameserver(text), Some("10.0.0.2:53".parse().unwrap()));
        assert_eq!(first_nameserver("nameserver ::1"), Some("[::1]:53".parse().unwrap()));
        assert_eq!(first_nameserver("nameserver\n"), None);
    }

    #[test]
    fn loopback_leads_to_this_machine() {
        let own = addresses().unwrap();
        assert!(own.iter().any(|range| range.contains(Ipv4Addr::LOCALHOST)), "{own:?}");
    }
}
