//! TLS verification of the server, by the certificates that the agent received at start.
//!
//! A server that presents one of these certificates is accepted, whatever its name and dates: the certificate
//! is pinned. Any other certificate must be valid for the server's name and signed by one of them.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Creates a TLS connector that accepts only trusted servers.
pub(crate) fn connector(trusted: &[Vec<u8>]) -> Result<TlsConnector, Error> {
    let provider = Arc::new(ring::default_provider());
    let trusted: Vec<_> = trusted.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let mut roots = RootCertStore::empty();
    for certificate in &trusted {
        roots.add(certificate.clone())?;
    }
    let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let webpki = webpki.map_err(|error| Error::General(error.to_string()))?;
    let verifier = Arc::new(PinnedVerifier { trusted, webpki });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Connections are rare, so session resumption would only cost memory.
    config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug)]
struct PinnedVerifier {
    /// Certificates that are accepted as they are.
    trusted: Vec<CertificateDer<'static>>,
    /// Verifier of other certificates, and of all signatures.
    webpki: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trusted.iter().any(|trusted| trusted == certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    // The signatures that prove possession of the private key are verified as usual.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
