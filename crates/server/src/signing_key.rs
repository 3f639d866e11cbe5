//! Keys that sign tokens and URLs, derived from one secret in the catalog.
//!
//! All servers of a catalog share the secret, so each of them accepts the tokens of the others.

use workspace_catalog::{Catalog, CatalogError};

/// Name of the secret in the catalog.
const SECRET_NAME: &str = "access";

/// Error of loading the secret.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SigningKeyError {
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("cannot get random bytes from the system: {0}")]
    Random(getrandom::Error),
    #[error("the secret `access` in the catalog is damaged\nhint: delete its row in the table `secrets`")]
    Damaged,
}

/// Secret from which signing keys are derived. Do not log it.
#[derive(Clone)]
pub struct SigningSecret([u8; blake3::KEY_LEN]);

impl SigningSecret {
    /// Loads the secret from the catalog, or creates it there.
    pub(crate) async fn load(catalog: &Catalog) -> Result<Self, SigningKeyError> {
        let mut random = [0; blake3::KEY_LEN];
        getrandom::fill(&mut random).map_err(SigningKeyError::Random)?;
        let candidate = blake3::Hash::from_bytes(random).to_hex();
        let stored = catalog.secrets().get_or_insert(SECRET_NAME, candidate.as_str()).await?;
        let stored = blake3::Hash::from_hex(stored).map_err(|_| SigningKeyError::Damaged)?;
        Ok(Self(*stored.as_bytes()))
    }

    #[cfg(test)]
    pub(crate) fn for_test(byte: u8) -> Self {
        Self([byte; blake3::KEY_LEN])
    }
}

impl std::fmt::Debug for SigningSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("(hidden)")
    }
}

/// Key of one kind of credential. Do not log it.
#[derive(Clone)]
pub(crate) struct SigningKey([u8; blake3::KEY_LEN]);

impl SigningKey {
    /// Derives the key for a context. What is signed in one context is not valid in another.
    pub(crate) fn derive(secret: &SigningSecret, context: &str) -> Self {
        Self(blake3::derive_key(context, &secret.0))
    }

    /// Returns the signature of a message: a BLAKE3 keyed hash.
    pub(crate) fn sign(&self, message: &[u8]) -> [u8; blake3::OUT_LEN] {
        *blake3::keyed_hash(&self.0, message).as_bytes()
    }

    /// Checks a signature, in a time that does not depend on its bytes.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        // The comparison of `blake3::Hash` takes constant time.
        blake3::keyed_hash(&self.0, message) == *signature
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_depend_on_secret_context_and_message() {
        let key = SigningKey::derive(&SigningSecret::for_test(1), "a");
        let signature = key.sign(b"message");
        assert!(key.verify(b"message", &signature));
        assert!(!key.verify(b"massage", &signature) && !key.verify(b"message", &signature[1..]));
        assert!(!key.verify(b"message", &[]));
        assert!(!SigningKey::derive(&SigningSecret::for_test(1), "b").verify(b"message", &signature));
        assert!(!SigningKey::derive(&SigningSecret::for_test(2), "a").verify(b"message", &signature));
        assert_eq!(format!("{key:?} {:?}", SigningSecret::for_test(1)), "(hidden) (hidden)");
    }

    #[tokio::test]
    async fn servers_of_a_catalog_load_the_same_secret() {
        let directory = tempfile::tempdir().unwrap();
        let url = workspace_catalog::sqlite_url(&directory.path().join("catalog.db"));
        let (one, other) = (Catalog::open(&url).await.unwrap(), Catalog::open(&url).await.unwrap());
        let first = SigningSecret::load(&one).await.unwrap();
        assert_eq!(SigningSecret::load(&other).await.unwrap().0, first.0);
        assert_ne!(first.0, [0; blake3::KEY_LEN]);
        let url = workspace_catalog::sqlite_url(&directory.path().join("another.db"));
        let another = SigningSecret::load(&Catalog::open(&url).await.unwrap()).await.unwrap();
        assert_ne!(another.0, first.0);
    }
}
