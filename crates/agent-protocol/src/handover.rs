//! What a guest agent that dials over the network is given when it starts.
//!
//! One that dials a socket is given its token alone, as it is.

use std::fmt;
use std::io;

use prost::Message;

/// As whom a guest dials, where, and by what it knows the server.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct Handover {
    /// Proves for which sandbox the guest speaks.
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
    /// Where the server is, address and port each, in the order in which they are tried. Names were looked up before:
    /// a guest has no means of its own.
    #[prost(string, repeated, tag = "2")]
    pub addresses: Vec<String>,
    /// Whom a certificate must be for that one of the trusted vouches for: a host's name or address.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Certificates in DER. The server has one of them, or one that they vouch for.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub trusted: Vec<Vec<u8>>,
}

impl Handover {
    /// As it is given.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// As it was given.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        Self::decode(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// The token is never shown.
impl fmt::Debug for Handover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Handover");
        shown.field("addresses", &self.addresses).field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_arrives_and_the_token_is_not_shown() {
        let given = Handover {
            token: b"secret".to_vec(),
            addresses: vec!["10.0.0.1:50051".to_owned()],
            name: "server".to_owned(),
            trusted: vec![vec![1], vec![2]],
        };
        assert_eq!(Handover::from_bytes(&given.to_bytes()).unwrap(), given);
        assert!(!format!("{given:?}").contains(&format!("{:?}", given.token)));
        assert!(Handover::from_bytes(b"a token alone").is_err());
    }
}
