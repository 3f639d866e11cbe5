//! First admin key: `API_KEY`, or a random key in `DATA_DIR/api-key`. There is no default key.

use std::path::PathBuf;

use serde_json::json;
use workspace_catalog::{ApiKey, Catalog, CatalogError, NewApiKey, Revocation, Role};

use crate::key_hash;
use crate::private_file::{self, PrivateFileError};
use crate::settings::Settings;

/// Prefix of the ids of first keys. Other keys have other prefixes.
const PREFIX: &str = "first-";

/// Returns the prefix of the ids of a server's first keys, by which the previous first key is found when it changes.
fn prefix(server_id: &str) -> String {
    format!("{PREFIX}{server_id}-")
}

/// Origin of the first key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrigin {
    /// Setting `API_KEY`.
    Setting,
    /// File that existed at the start.
    Kept(PathBuf),
    /// File that was created at this start.
    Created(PathBuf),
}

/// Error of finding or creating the first key.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FirstKeyError {
    #[error(transparent)]
    File(#[from] PrivateFileError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("cannot get random bytes from the system: {0}")]
    Random(getrandom::Error),
    #[error("{path} does not contain a key\nhint: remove it, and the next start creates a new key")]
    Unusable { path: PathBuf },
    #[error("the first key was revoked, and there is no other admin key\nhint: {hint}")]
    Revoked { hint: String },
}

/// Finds or creates the first key and adds it to the catalog. Revokes the previous first key of this server.
pub async fn ensure(
    settings: &Settings,
    server_id: &str,
    catalog: &Catalog,
) -> Result<KeyOrigin, FirstKeyError> {
    let (key, origin) = find(settings)?;
    let hash = key_hash::hash(&key);
    let any_owner = None;
    let keys = catalog.api_keys().list(any_owner).await?;
    match keys.iter().find(|key| key.hash == hash) {
        None => insert(catalog, server_id, hash.clone()).await?,
        Some(known) if known.revoked_at.is_some() => check_other_admin(&keys, &hash, &origin)?,
        Some(_) => {}
    }
    let own = prefix(server_id);
    let is_previous =
        |key: &&ApiKey| key.id.starts_with(&own) && key.hash != hash && key.revoked_at.is_none();
    for key in keys.iter().filter(is_previous) {
        if catalog.api_keys().revoke(&key.id).await? == Revocation::Revoked {
            tracing::info!(key_id = key.id, "first key changed; the previous one was revoked");
        }
    }
    Ok(origin)
}

fn find(settings: &Settings) -> Result<(String, KeyOrigin), FirstKeyError> {
    if let Some(key) = &settings.api_key {
        return Ok((key.reveal().to_owned(), KeyOrigin::Setting));
    }
    let path = settings.data_dir.join("api-key");
    if let Some(text) = private_file::read(&path)? {
        let key = text.trim().to_owned();
        return if key.len() < 16 {
            Err(FirstKeyError::Unusable { path })
        } else {
            Ok((key, KeyOrigin::Kept(path)))
        };
    }
    let key = random_key().map_err(FirstKeyError::Random)?;
    private_file::create(&path, &format!("{key}\n"))?;
    Ok((key, KeyOrigin::Created(path)))
}

async fn insert(catalog: &Catalog, server_id: &str, hash: String) -> Result<(), FirstKeyError> {
    let id = format!("{}{}", prefix(server_id), key_hash::short(&hash));
    let name = "first key".to_owned();
    let key = NewApiKey {
        id,
        name,
        owner: "admin".to_owned(),
        role: Role::Admin,
        hash,
        limits: json!({}),
        binding: None,
    };
    Ok(catalog.api_keys().insert(&key).await?)
}

/// Fails if the first key is revoked and there is no other admin key. A revoked key stays revoked. First keys do not
/// count as other keys: this server is about to revoke its previous one, and another server may revoke its own at any
/// start.
fn check_other_admin(keys: &[ApiKey], hash: &str, origin: &KeyOrigin) -> Result<(), FirstKeyError> {
    let other = |key: &ApiKey| {
        key.role == Role::Admin && key.revoked_at.is_none() && key.hash != hash && !key.id.starts_with(PREFIX)
    };
    if keys.iter().any(other) {
        tracing::warn!("first key is revoked; use another admin key");
        return Ok(());
    }
    let hint = match origin {
        KeyOrigin::Setting => "set another API_KEY".to_owned(),
        KeyOrigin::Kept(path) | KeyOrigin::Created(path) => {
            format!("remove {}, and the next start creates a new key", path.display())
        }
    };
    Err(FirstKeyError::Revoked { hint })
}

/// Generates a key of 256 random bits.
pub(crate) fn random_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(format!("wsk-{}", blake3::Hash::from_bytes(bytes).to_hex()))
}
