//! TLS identity of the server for guest agents that connect over a network.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ServerConfig};

/// Name in a self-signed certificate. Guest agents get the certificate itself and check no name.
const NAME: &str = "workspace-server";

/// Reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum IdentityError {
    #[error("{part} cannot be read: {source}")]
    Certificates { part: &'static str, source: pem::Error },
    #[error("the private key cannot be read: {0}")]
    Key(pem::Error),
    #[error("{part} contains no certificate")]
    Empty { part: &'static str },
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// A certificate with its key, and the certificates that guest agents trust.
#[derive(Debug, Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
    /// Certificates that guest agents trust, in DER.
    trusted: Vec<Vec<u8>>,
}

impl Identity {
    /// Creates a new certificate and its key, in PEM. It never expires, because guest agents could not receive the
    /// next one.
    pub fn generate_pem() -> Result<String, IdentityError> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new([NAME.to_owned()])?.self_signed(&key)?;
        Ok(certificate.pem() + &key.serialize_pem())
    }

    /// Loads the certificate that `chain` begins with and its key; guest agents trust the certificates in
    /// `trusted`. All are PEM.
    pub fn new(chain: &[u8], key: &[u8], trusted: &[u8]) -> Result<Self, IdentityError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(IdentityError::Key)?;
        let chain = certificates("the certificate chain", chain)?;
        let trusted = certificates("the CA bundle", trusted)?;
        let trusted = trusted.iter().map(|one| one.to_vec()).collect();
        let provider = Arc::new(ring::default_provider());
        // Guest agents support only TLS 1.3.
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let mut config = config.with_no_client_auth().with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // Guest agents do not resume sessions.
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), trusted })
    }

    pub(crate) fn trusted(&self) -> &[Vec<u8>] {
        &self.trusted
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }
}

fn certificates(part: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|source| IdentityError::Certificates { part, source })?;
    if found.is_empty() { Err(IdentityError::Empty { part }) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_certificate_is_usable_and_unique() {
        let (one, other) = (Identity::generate_pem().unwrap(), Identity::generate_pem().unwrap());
        assert_ne!(one, other);
        let identity = Identity::new(one.as_bytes(), one.as_bytes(), one.as_bytes()).unwrap();
        assert_eq!(identity.trusted().len(), 1);
        let wrong = |chain: &str, key: &str, trusted: &str| {
            Identity::new(chain.as_bytes(), key.as_bytes(), trusted.as_bytes()).unwrap_err()
        };
        assert!(matches!(wrong(&one, &other, &one), IdentityError::Unusable(_)));
        assert!(matches!(wrong("", &one, &one), IdentityError::Empty { .. }));
        assert!(matches!(wrong(&one, "", &one), IdentityError::Key(_)));
        assert!(matches!(wrong(&one, &one, ""), IdentityError::Empty { .. }));
    }
}
