//! TLS from certificate files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Error of loading certificate and key.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TlsError {
    #[error("{setting} {path}: {source}\nhint: it must be a PEM file")]
    File { setting: &'static str, path: PathBuf, source: pem::Error },
    #[error("TLS_CERT {path} contains no certificate")]
    Empty { path: PathBuf },
    #[error("certificate and key cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// Creates the acceptor of TLS connections from PEM files.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let failed = |setting, path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { setting, path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed("TLS_CERT", certificate))?;
    if chain.is_empty() {
        return Err(TlsError::Empty { path: certificate.to_owned() });
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed("TLS_KEY", key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(TlsError::Unusable)?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
