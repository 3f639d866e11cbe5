//! Address at which guest agents reach the server over a network.

/// Address of the port for guest agents.
#[derive(Debug, Clone)]
pub struct ServerEndpoint {
    /// Host and port to connect to, if they are not those that the runtime finds.
    pub(crate) advertised: Option<(String, u16)>,
    /// Port that the server listens on.
    pub(crate) port: u16,
    /// Certificates that guest agents trust, in DER.
    pub(crate) trusted: Vec<Vec<u8>>,
}
