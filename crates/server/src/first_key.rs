//! The first admin key: `API_KEY`, or one that is made and kept in `DATA_DIR/api-key`. There is never a default.

use std::path::PathBuf;

use serde_json::json;
use workspace_catalog::{ApiKey, Catalog, CatalogError, NewApiKey, Role};

use crate::key_hash;
use crate::private::{self, PrivateError};
use crate::settings::Settings;

/// Begins the ids of first keys; no other key's does.
const PREFIX: &str = "first-";

/// Begins the ids of a server's own, so that the former one is found when it changes.
fn prefix(node: &str) -> String {
    format!("{PREFIX}{node}-")
}

/// KeyOrigin of the first key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOrigin {
    /// The setting.
    Setting,
    /// A file, which was there.
    Kept(PathBuf),
    /// A file, made just now.
    Created(PathBuf),
}

/// Why there is no first key.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FirstKeyError {
    #[error(transparent)]
    File(#[from] PrivateError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
    #[error("{path} does not hold a key\nhint: remove it, and a new key is made")]
    Unusable { path: PathBuf },
    #[error("the first key was revoked, and there is no other admin key\nhint: {hint}")]
    Revoked { hint: String },
}

/// Finds or makes the first key and enters it in the catalog; the former first key ends.
pub async fn ensure(settings: &Settings, node: &str, catalog: &Catalog) -> Result<KeyOrigin, FirstKeyError> {
    let (key, origin) = find(settings)?;
    let hash = key_hash::hash(&key);
    let keys = catalog.api_keys().list(None).await?;
    match keys.iter().find(|key| key.hash == hash) {
        None => insert(catalog, node, hash.clone()).await?,
        Some(known) if known.revoked_at.is_some() => without_it(&keys, &hash, &origin)?,
        Some(_) => {}
    }
    let own = prefix(node);
    let former = |key: &&ApiKey| key.id.starts_with(&own) && key.hash != hash && key.revoked_at.is_none();
    for key in keys.iter().filter(former) {
        catalog.api_keys().revoke(&key.id).await?;
        tracing::info!(key_id = key.id, "first key changed; the previous one was revoked");
    }
    Ok(origin)
}

fn find(settings: &Settings) -> Result<(String, KeyOrigin), FirstKeyError> {
    if let Some(key) = &settings.api_key {
        return Ok((key.reveal().to_owned(), KeyOrigin::Setting));
    }
    let path = settings.data_dir.join("api-key");
    if let Some(text) = private::read(&path)? {
        let key = text.trim().to_owned();
        return if key.len() < 16 {
            Err(FirstKeyError::Unusable { path })
        } else {
            Ok((key, KeyOrigin::Kept(path)))
        };
    }
    let key = random_key().map_err(FirstKeyError::Random)?;
    private::create(&path, &format!("{key}\n"))?;
    Ok((key, KeyOrigin::Created(path)))
}

async fn insert(catalog: &Catalog, node: &str, hash: String) -> Result<(), FirstKeyError> {
    let id = format!("{}{}", prefix(node), key_hash::short(&hash));
    let name = "first key".to_owned();
    let key = NewApiKey { id, name, owner: "admin".to_owned(), role: Role::Admin, hash, limits: json!({}) };
    Ok(catalog.api_keys().insert(&key).await?)
}

/// Handles a first key that was revoked. It stays revoked; fails if there is no other admin key.
fn without_it(keys: &[ApiKey], hash: &str, origin: &KeyOrigin) -> Result<(), FirstKeyError> {
    let other = |key: &ApiKey| {
        key.role == Role::Admin && key.revoked_at.is_none() && key.hash != hash && !key.id.starts_with(PREFIX)
    };
    if keys.iter().any(other) {
        tracing::warn!("first key is revoked; use another admin key");
        return Ok(());
    }
    let hint = match origin {
        KeyOrigin::Setting => "give another API_KEY".to_owned(),
        KeyOrigin::Kept(path) | KeyOrigin::Created(path) => {
            format!("remove {}, and a new key is made", path.display())
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
