//! Allow lists of address ranges and host names.

use std::fmt;
use std::str::FromStr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::cidr::{CidrError, parse_cidr};

/// Maximum length of a host name, in bytes.
const HOST_NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// An entry of an allow list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AllowRule {
    /// Any address in this range.
    Addresses(Ipv4Net),
    /// Addresses that a matching host name resolves to.
    Host(HostPattern),
}

/// Pattern of host names, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// This name only.
    Exact(String),
    /// All subdomains of this name, but not the name itself.
    Subdomains(String),
}

/// Error of parsing an entry of an allow list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// Looks like a range of addresses, but is not a valid one.
    #[error(transparent)]
    Addresses(#[from] CidrError),
    /// Looks like a host name, but is not a valid one.
    #[error(
        "`{0}` is neither a host name such as example.com or *.example.com, without port and path, nor an IPv4 \
         range such as 10.1.0.0/16"
    )]
    Name(String),
}

impl HostPattern {
    /// Returns whether `name` matches. It must be in lower case and without a trailing dot.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => name == exact,
            Self::Subdomains(domain) => {
                name.strip_suffix(domain.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }
}

impl FromStr for AllowRule {
    type Err = AllowError;

    fn from_str(text: &str) -> Result<Self, AllowError> {
        // The last label of a host name is never a number, and a host name has neither colon nor slash.
        let last = text.rsplit('.').next().unwrap_or_default();
        if text.contains([':', '/']) || last.bytes().all(|byte| byte.is_ascii_digit()) && !last.is_empty() {
            let has_letters = text.bytes().any(|byte| byte.is_ascii_alphabetic());
            // With a letter it is a URL, a name with a port, or an IPv6 address.
            return match parse_cidr(text) {
                Err(CidrError::Malformed(_)) if has_letters && !text.contains("::") => {
                    Err(AllowError::Name(text.to_owned()))
                }
                addresses => Ok(Self::Addresses(addresses?)),
            };
        }
        let name = text.to_ascii_lowercase();
        let (name, is_wildcard) = name.strip_prefix("*.").map_or((name.as_str(), false), |name| (name, true));
        if !is_host_name(name) {
            return Err(AllowError::Name(text.to_owned()));
        }
        let name = name.to_owned();
        Ok(Self::Host(if is_wildcard { HostPattern::Subdomains(name) } else { HostPattern::Exact(name) }))
    }
}

fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let has_valid_bytes = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        !label.is_empty()
            && label.len() <= LABEL_MAX
            && has_valid_bytes
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= HOST_NAME_MAX && text.split('.').all(is_label)
}

impl fmt::Display for AllowRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses(cidr) => cidr.fmt(formatter),
            Self::Host(HostPattern::Exact(name)) => formatter.write_str(name),
            Self::Host(HostPattern::Subdomains(name)) => write!(formatter, "*.{name}"),
        }
    }
}

impl TryFrom<String> for AllowRule {
    type Error = AllowError;

    fn try_from(text: String) -> Result<Self, AllowError> {
        text.parse()
    }
}

impl From<AllowRule> for String {
    fn from(rule: AllowRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        match text.parse().unwrap() {
            AllowRule::Host(pattern) => pattern,
            AllowRule::Addresses(cidr) => panic!("{cidr}"),
        }
    }

    #[test]
    fn entries_are_names_or_ranges() {
        for (text, shown) in [
            ("PyPI.org", "pypi.org"),
            ("*.npmjs.org", "*.npmjs.org"),
            ("10.0.0.7", "10.0.0.7/32"),
            ("db", "db"),
        ] {
            assert_eq!(text.parse::<AllowRule>().unwrap().to_string(), shown);
        }
        let long = "a".repeat(64);
        for wrong in [
            "", "*", "*.", "a..b", ".a", "a.", "-a.b", "a*.b", "a.*.b", "http://a", "a b", "1.2.3", "a/8",
            "::1", &long,
        ] {
            assert!(wrong.parse::<AllowRule>().is_err(), "{wrong}");
        }
        for ipv6 in ["fd00::1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6/128"] {
            let error = ipv6.parse::<AllowRule>().unwrap_err();
            assert_eq!(error, AllowError::Addresses(CidrError::Ipv6(ipv6.to_owned())));
        }
    }

    #[test]
    fn a_wildcard_matches_subdomains_only() {
        let wildcard = pattern("*.example.com");
        assert!(wildcard.matches("a.example.com") && wildcard.matches("a.b.example.com"));
        for other in ["example.com", ".example.com", "notexample.com", "example.com.evil.org", "com"] {
            assert!(!wildcard.matches(other), "{other}");
        }
        let exact = pattern("example.com");
        assert!(exact.matches("example.com") && !exact.matches("a.example.com"));
    }
}
