//! Parsing of ranges of IPv4 addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv4Net;

/// Error of parsing an address range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// An IPv6 range. Sandboxes have no IPv6.
    #[error("`{0}` is IPv6; sandboxes support IPv4 only")]
    Ipv6(String),
    /// Not a range of addresses.
    #[error("`{0}` is not an IPv4 range such as 10.1.0.0/16")]
    Malformed(String),
    /// Host bits are set, so the range may be a typo.
    #[error("`{text}` has host bits set; did you mean `{suggestion}`?")]
    HostBits {
        /// Text that was parsed.
        text: String,
        /// Range with these bits cleared.
        suggestion: Ipv4Net,
    },
}

/// Parses a range such as `10.1.0.0/16`, or a single address.
pub fn parse_cidr(text: &str) -> Result<Ipv4Net, CidrError> {
    let address = text.split('/').next().unwrap_or_default();
    if address.parse::<Ipv6Addr>().is_ok() {
        return Err(CidrError::Ipv6(text.to_owned()));
    }
    let malformed = || CidrError::Malformed(text.to_owned());
    // `Ipv4Net` alone would accept leading zeros, which other programs take for octal numbers.
    let address: Ipv4Addr = address.parse().map_err(|_| malformed())?;
    let range =
        if text.contains('/') { text.parse().map_err(|_| malformed())? } else { Ipv4Net::from(address) };
    let suggestion = range.trunc();
    if range == suggestion {
        Ok(range)
    } else {
        Err(CidrError::HostBits { text: text.to_owned(), suggestion })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Ipv4Net {
        parse_cidr(text).unwrap()
    }

    #[test]
    fn ranges_are_parsed_and_formatted() {
        assert_eq!(cidr("10.1.0.0/16").to_string(), "10.1.0.0/16");
        assert_eq!(cidr("192.168.7.9").to_string(), "192.168.7.9/32");
        assert_eq!(cidr("0.0.0.0/0").prefix_len(), 0);
        for wrong in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "10.0.0.0/008",
            "a/8",
            "010.0.0.0/8",
            "010.0.0.1",
        ] {
            assert_eq!(parse_cidr(wrong), Err(CidrError::Malformed(wrong.to_owned())), "{wrong}");
        }
        for wrong in ["::/0", "fd00::1", "::1/128"] {
            assert_eq!(parse_cidr(wrong), Err(CidrError::Ipv6(wrong.to_owned())), "{wrong}");
        }
        let wrong = parse_cidr("10.1.2.3/16").unwrap_err();
        assert_eq!(
            wrong,
            CidrError::HostBits { text: "10.1.2.3/16".to_owned(), suggestion: cidr("10.1.0.0/16") }
        );
    }
}
