//! Allow lists: ranges of addresses, and host names.

use std::fmt;
use std::str::FromStr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::cidr::{CidrError, parse_cidr};

/// Maximum length of a host name, in bytes.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// An entry of an allow list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Allow {
    /// Any address in this range.
    Addresses(Ipv4Net),
    /// Addresses that these names resolve to.
    Names(Names),
}

/// Host names, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// This name only.
    One(String),
    /// All names below this one, but not the name itself.
    Below(String),
}

/// Error of parsing an entry of an allow list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// Looks like a range of addresses, but is not a valid one.
    #[error(transparent)]
    Addresses(#[from] CidrError),
    /// Looks like a host name, but is not a valid one.
    #[error(
        "`{0}` is no host name such as example.com or *.example.com, without port and path, and no range of IPv4 \
         addresses such as 10.1.0.0/16"
    )]
    Name(String),
}

impl Names {
    /// Returns whether `name` matches. It must be in lower case and without a trailing dot.
    pub fn include(&self, name: &str) -> bool {
        match self {
            Self::One(one) => name == one,
            Self::Below(above) => {
                name.strip_suffix(above.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }
}

impl FromStr for Allow {
    type Err = AllowError;

    fn from_str(text: &str) -> Result<Self, AllowError> {
        // The last label of a host name is never a number, and a host name has neither colon nor slash.
        let last = text.rsplit('.').next().unwrap_or_default();
        if text.contains([':', '/']) || last.bytes().all(|byte| byte.is_ascii_digit()) && !last.is_empty() {
            let letters = text.bytes().any(|byte| byte.is_ascii_alphabetic());
            // With a letter it is a URL, or a name with a port. IPv6 addresses have letters, too.
            return match parse_cidr(text) {
                Err(_) if letters && !text.contains("::") => Err(AllowError::Name(text.to_owned())),
                addresses => Ok(Self::Addresses(addresses?)),
            };
        }
        let name = text.to_ascii_lowercase();
        let (name, below) = name.strip_prefix("*.").map_or((name.as_str(), false), |name| (name, true));
        if !is_name(name) {
            return Err(AllowError::Name(text.to_owned()));
        }
        let name = name.to_owned();
        Ok(Self::Names(if below { Names::Below(name) } else { Names::One(name) }))
    }
}

fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        !label.is_empty()
            && label.len() <= LABEL_MAX
            && inner
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= NAME_MAX && text.split('.').all(label)
}

impl fmt::Display for Allow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses(cidr) => cidr.fmt(formatter),
            Self::Names(Names::One(name)) => formatter.write_str(name),
            Self::Names(Names::Below(name)) => write!(formatter, "*.{name}"),
        }
    }
}

impl TryFrom<String> for Allow {
    type Error = AllowError;

    fn try_from(text: String) -> Result<Self, AllowError> {
        text.parse()
    }
}

impl From<Allow> for String {
    fn from(allow: Allow) -> Self {
        allow.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        match text.parse().unwrap() {
            Allow::Names(names) => names,
            Allow::Addresses(cidr) => panic!("{cidr}"),
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
            assert_eq!(text.parse::<Allow>().unwrap().to_string(), shown);
        }
        let long = "a".repeat(64);
        for wrong in [
            "", "*", "*.", "a..b", ".a", "a.", "-a.b", "a*.b", "a.*.b", "http://a", "a b", "1.2.3", "a/8",
            "::1", &long,
        ] {
            assert!(wrong.parse::<Allow>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wildcard_matches_subdomains_only() {
        let below = names("*.example.com");
        assert!(below.include("a.example.com") && below.include("a.b.example.com"));
        for other in ["example.com", ".example.com", "notexample.com", "example.com.evil.org", "com"] {
            assert!(!below.include(other), "{other}");
        }
        let one = names("example.com");
        assert!(one.include("example.com") && !one.include("a.example.com"));
    }
}
