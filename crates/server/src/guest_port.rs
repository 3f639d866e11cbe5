//! TCP port for guest agents.

use std::path::{Path, PathBuf};

use workspace_sandbox::{GuestPort, Identity, IdentityError};

use crate::private_file::{self, PrivateFileError};
use crate::serve::{self, ServeError};
use crate::settings::{GuestTransport, HostPort, Settings};

/// PEM file in `DATA_DIR` with a self-signed certificate and its private key, used if `GRPC_TLS_CERT` is not set.
const SELF_SIGNED_FILE: &str = "guests.pem";

/// Error of setting up the port for guest agents.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GuestPortError {
    #[error("{setting} {path} cannot be read: {source}")]
    File { setting: &'static str, path: PathBuf, source: std::io::Error },
    #[error("GRPC_TLS_CERT, GRPC_TLS_KEY and GRPC_TLS_CA cannot be used: {0}\nhint: they must be PEM files")]
    Settings(IdentityError),
    #[error(
        "{path} cannot be used: {source}\nhint: if you remove it, a new one is created, which running agents do not trust"
    )]
    SelfSigned { path: PathBuf, source: IdentityError },
    #[error("cannot create a certificate for guest agents: {0}")]
    Create(IdentityError),
    #[error(transparent)]
    Private(#[from] PrivateFileError),
    #[error(transparent)]
    Listen(#[from] ServeError),
    #[error("cannot read the address of the port for guest agents: {0}")]
    Address(#[from] std::io::Error),
}

/// Listens on `GRPC_PORT`; `None` unless `GUEST_TRANSPORT=tcp`.
pub(crate) async fn listen(settings: &Settings) -> Result<Option<GuestPort>, GuestPortError> {
    if settings.guest_transport == GuestTransport::Unix {
        return Ok(None);
    }
    let identity = identity(settings)?;
    let listener = serve::listen(settings.grpc_host, settings.grpc_port, "GRPC_PORT").await?;
    // `parts` is always `Some`: the setting was validated when it was parsed.
    let advertised = settings.grpc_advertise.as_ref().and_then(HostPort::parts);
    Ok(Some(GuestPort::new(listener, identity, advertised)?))
}

/// Returns the certificate of the port: that of the settings, or the self-signed one.
fn identity(settings: &Settings) -> Result<Identity, GuestPortError> {
    let (Some(chain), Some(key)) = (&settings.grpc_tls_cert, &settings.grpc_tls_key) else {
        return self_signed(&settings.data_dir.join(SELF_SIGNED_FILE));
    };
    let (chain, key) = (read("GRPC_TLS_CERT", chain)?, read("GRPC_TLS_KEY", key)?);
    let trusted = settings.grpc_tls_ca.as_ref().map(|path| read("GRPC_TLS_CA", path)).transpose()?;
    Identity::new(&chain, &key, trusted.as_ref().unwrap_or(&chain)).map_err(GuestPortError::Settings)
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, GuestPortError> {
    std::fs::read(path).map_err(|source| GuestPortError::File { setting, path: path.to_owned(), source })
}

/// Reads the self-signed certificate, or creates it. It never changes, because running agents trust only this one.
fn self_signed(path: &Path) -> Result<Identity, GuestPortError> {
    let pem = match private_file::read(path)? {
        Some(pem) => pem,
        None => {
            let pem = Identity::generate_pem().map_err(GuestPortError::Create)?;
            private_file::create(path, &pem)?;
            pem
        }
    };
    // Certificate chain, key and trusted certificates are all in the one file.
    let pem = pem.as_bytes();
    Identity::new(pem, pem, pem)
        .map_err(|source| GuestPortError::SelfSigned { path: path.to_owned(), source })
}
