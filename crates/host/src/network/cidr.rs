//! Ranges of IPv4 addresses.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Range of addresses that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: Ipv4Addr,
    bits: u8,
}

/// Error of parsing a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// An IPv6 range. Sandboxes have no IPv6.
    #[error("`{0}` is IPv6; sandboxes reach IPv4 only")]
    Version(String),
    /// Not a range of addresses.
    #[error("`{0}` is no range of IPv4 addresses such as 10.1.0.0/16")]
    Form(String),
    /// Some bits after the prefix are not zero, so that the range may be a typo.
    #[error("`{given}` has bits beyond its length; `{meant}` has not")]
    Bits {
        /// Text that was parsed.
        given: String,
        /// Range with these bits cleared.
        meant: Cidr,
    },
}

impl Cidr {
    /// Returns the range of the first `bits` bits of `address`. More than 32 count as 32.
    pub const fn new(address: Ipv4Addr, bits: u8) -> Self {
        let bits = if bits > 32 { 32 } else { bits };
        Self { address: Ipv4Addr::from_bits(address.to_bits() & mask(bits)), bits }
    }

    /// Returns the range of a single address.
    pub const fn one(address: Ipv4Addr) -> Self {
        Self::new(address, 32)
    }

    /// Returns the first address.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Returns the length of the prefix, in bits.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Returns whether all addresses of `other` are in this range.
    pub fn covers(self, other: Self) -> bool {
        self.bits <= other.bits && other.address.to_bits() & mask(self.bits) == self.address.to_bits()
    }

    /// Returns whether the range contains `address`.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.covers(Self::one(address))
    }
}

const fn mask(bits: u8) -> u32 {
    if bits == 0 { 0 } else { u32::MAX << (32 - bits) }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        if address.parse::<Ipv6Addr>().is_ok() {
            return Err(CidrError::Version(text.to_owned()));
        }
        let form = || CidrError::Form(text.to_owned());
        let address: Ipv4Addr = address.parse().map_err(|_| form())?;
        let plain = |bits: &&str| bits.len() <= 2 && bits.bytes().all(|digit| digit.is_ascii_digit());
        let bits = match bits {
            None => 32,
            Some(bits) => Some(bits).filter(plain).and_then(|bits| bits.parse().ok()).ok_or_else(form)?,
        };
        if bits > 32 {
            return Err(form());
        }
        let meant = Self::new(address, bits);
        if meant.address == address {
            Ok(meant)
        } else {
            Err(CidrError::Bits { given: text.to_owned(), meant })
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_are_parsed_and_formatted() {
        assert_eq!(cidr("10.1.0.0/16").to_string(), "10.1.0.0/16");
        assert_eq!(cidr("192.168.7.9").to_string(), "192.168.7.9/32");
        assert_eq!(cidr("0.0.0.0/0").bits(), 0);
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "10.0.0.0/+8", "10.0.0.0/8/8", "a/8"] {
            assert_eq!(wrong.parse::<Cidr>(), Err(CidrError::Form(wrong.to_owned())), "{wrong}");
        }
        for wrong in ["::/0", "fd00::1", "::1/128"] {
            assert_eq!(wrong.parse::<Cidr>(), Err(CidrError::Version(wrong.to_owned())), "{wrong}");
        }
        let wrong = "10.1.2.3/16".parse::<Cidr>().unwrap_err();
        assert_eq!(wrong, CidrError::Bits { given: "10.1.2.3/16".to_owned(), meant: cidr("10.1.0.0/16") });
    }

    #[test]
    fn a_range_covers_addresses_with_its_prefix() {
        assert!(cidr("0.0.0.0/0").covers(cidr("255.255.255.255")));
        assert!(cidr("10.0.0.0/8").covers(cidr("10.0.0.0/8")));
        assert!(!cidr("10.0.0.0/8").covers(cidr("0.0.0.0/0")));
        assert!(cidr("10.0.0.0/8").contains(Ipv4Addr::new(10, 255, 0, 1)));
        assert!(!cidr("10.0.0.0/8").contains(Ipv4Addr::new(11, 0, 0, 0)));
    }
}
