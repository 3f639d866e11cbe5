//! By what the agent knows the server over a network: the certificates it was given when it started.
//!
//! A server that has one of them is the server, whatever name and dates are in it: who gave the certificate gave it for
//! that. Any other certificate must be for the server's name and vouched for by one of them.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// What makes TLS of connections to a server that is trusted.
pub(crate) fn connector(trusted: &[Vec<u8>]) -> Result<TlsConnector, Error> {
    let provider = Arc::new(ring::default_provider());
    let trusted: Vec<_> = trusted.iter().map(|one| CertificateDer::from(one.clone())).collect();
    let mut roots = RootCertStore::empty();
    for one in &trusted {
        roots.add(one.clone())?;
    }
    let vouched = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let vouched = vouched.map_err(|error| Error::General(error.to_string()))?;
    let verifier = Arc::new(Trusted { trusted, vouched });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Connections are few; what would make the next one quicker only takes memory.
    config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug)]
struct Trusted {
    trusted: Vec<CertificateDer<'static>>,
    vouched: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trusted.iter().any(|one| one == certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        self.vouched.verify_server_cert(certificate, others, name, ocsp, now)
    }

    // That the server has the key of its certificate is proved as ever.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.vouched.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.vouched.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.vouched.supported_verify_schemes()
    }
}
