//! Start parameters of a guest agent that connects over the network.
//!
//! An agent that connects to a Unix socket receives only its token, as plain bytes. Its command line decides which of
//! the two formats it reads; it never tries one after the other.

use std::fmt;
use std::io;

use prost::Message;

/// Credentials of the guest agent or its I/O worker, and address and certificates of the server.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct StartParameters {
    /// Token that authenticates the guest agent for its sandbox; for an I/O worker, the ticket for its connections.
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
    /// Socket addresses of the server, in the order in which they are tried. The server resolves host names,
    /// since a resolver would start a thread in the agent, which must have only one.
    #[prost(string, repeated, tag = "2")]
    pub addresses: Vec<String>,
    /// Host name or address for which the server's certificate must be valid, unless the certificate itself
    /// is in `trusted_certificates`.
    #[prost(string, tag = "3")]
    pub server_name: String,
    /// Certificates in DER that the agent trusts. The server presents one of them, or a certificate signed by one
    /// of them.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub trusted_certificates: Vec<Vec<u8>>,
}

impl StartParameters {
    /// Encodes the parameters as protobuf.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Decodes the parameters. Fails with `InvalidData`.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        Self::decode(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// Omits the token.
impl fmt::Debug for StartParameters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = formatter.debug_struct("StartParameters");
        output
            .field("addresses", &self.addresses)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_round_trip_and_debug_omits_the_token() {
        let parameters = StartParameters {
            token: b"secret".to_vec(),
            addresses: vec!["10.0.0.1:50051".to_owned()],
            server_name: "server".to_owned(),
            trusted_certificates: vec![vec![1], vec![2]],
        };
        assert_eq!(StartParameters::from_bytes(&parameters.to_bytes()).unwrap(), parameters);
        assert!(!format!("{parameters:?}").contains(&format!("{:?}", parameters.token)));
    }
}
