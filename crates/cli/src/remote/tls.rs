//! TLS, with the certificates that this machine trusts.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::RequestError;

/// Certificate bundles of distributions.
const CERTIFICATE_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Starts TLS on a connection. Fails before any data is sent if the server is not trusted.
pub(super) async fn connect(host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, RequestError> {
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| RequestError::Unreachable(error.to_string()))?;
    let roots = read_roots().map_err(RequestError::Untrusted)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| RequestError::Unreachable(error.to_string()))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| handshake_error(&error))
}

/// Maps an error of the TLS handshake.
fn handshake_error(error: &io::Error) -> RequestError {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => RequestError::Untrusted(error.to_string()),
        Some(rustls::Error::InvalidMessage(_)) => RequestError::Unreachable(
            "the server does not support TLS; its URL may start with http://".to_owned(),
        ),
        _ => RequestError::Unreachable(error.to_string()),
    }
}

/// Reads trusted certificates from `SSL_CERT_FILE`, or those of the machine.
fn read_roots() -> Result<RootCertStore, String> {
    let chosen = env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || CERTIFICATE_BUNDLES.iter().map(PathBuf::from).find(|path| path.exists());
    let Some(path) = chosen.or_else(usual) else {
        return Err(
            "no trusted certificates found on this machine; set SSL_CERT_FILE to a file with some".to_owned()
        );
    };
    read(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<RootCertStore, rustls::pki_types::pem::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path)? {
        // Bundles contain certificates that cannot be parsed.
        roots.add_parsable_certificates([certificate?]);
    }
    Ok(roots)
}
