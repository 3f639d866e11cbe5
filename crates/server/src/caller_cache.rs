//! Cache of callers by their key.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use workspace_catalog::{ApiKey, Catalog};

use crate::caller::Caller;
use crate::error::ApiError;
use crate::key_hash::short;

/// Time to live of a cached caller. During it, a key that another server of the same catalog revokes is still accepted.
const CACHE_LIFETIME: Duration = Duration::from_secs(5);
const CACHE_ENTRIES_MAX: usize = 10_000;

/// Cache of callers by their key.
#[derive(Debug, Default)]
pub(crate) struct CallerCache {
    inner: Mutex<CachedCallers>,
    /// Changes after this server has revoked a key.
    revoked: watch::Sender<()>,
}

/// Reference to a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum KeyReference {
    /// Hash of the key that was sent.
    Hash(String),
    /// Id of the key with which a token, a ticket or a signed URL was created.
    Id(String),
}

#[derive(Debug, Default)]
struct CachedCallers {
    /// Callers with the time at which they were cached.
    callers: HashMap<KeyReference, (Caller, Instant)>,
    /// Number of revocations. A lookup that began before the last one is not cached.
    revocations: u64,
}

impl CallerCache {
    /// Finds a caller in the cache or in the catalog. `None` if there is no such key, or it was revoked.
    pub(crate) async fn find(
        &self,
        catalog: &Catalog,
        reference: KeyReference,
    ) -> Result<Option<Caller>, ApiError> {
        let revocations = {
            let cached = self.inner.lock();
            if let Some((caller, at)) = cached.callers.get(&reference)
                && at.elapsed() < CACHE_LIFETIME
            {
                return Ok(Some(caller.clone()));
            }
            cached.revocations
        };
        let found = match &reference {
            KeyReference::Hash(hash) => catalog.api_keys().find_by_hash(hash).await?,
            KeyReference::Id(id) => catalog.api_keys().find_by_id(id).await?,
        };
        let Some(key) = found else { return Ok(None) };
        let caller = caller(key)?;
        self.insert(reference, &caller, revocations);
        Ok(Some(caller))
    }

    fn insert(&self, reference: KeyReference, caller: &Caller, revocations: u64) {
        let mut cached = self.inner.lock();
        if cached.revocations != revocations {
            return;
        }
        if cached.callers.len() >= CACHE_ENTRIES_MAX {
            cached.callers.clear();
        }
        cached.callers.insert(reference, (caller.clone(), Instant::now()));
    }

    /// Removes a key that was revoked.
    pub(crate) fn remove(&self, key_id: &str) {
        let mut cached = self.inner.lock();
        cached.revocations += 1;
        cached.callers.retain(|_, (caller, _)| caller.key_id != key_id);
        drop(cached);
        self.revoked.send_replace(());
    }

    /// Returns a receiver that changes after this server has revoked a key.
    pub(crate) fn revocations(&self) -> watch::Receiver<()> {
        self.revoked.subscribe()
    }
}

fn caller(key: ApiKey) -> Result<Caller, ApiError> {
    let limits = serde_json::from_value(key.limits).map_err(ApiError::internal)?;
    Ok(Caller {
        key_id: key.id,
        name: key.name,
        owner: key.owner,
        role: key.role,
        limits,
        user: short(&key.hash),
        binding: key.binding,
        grant: None,
    })
}

#[cfg(test)]
mod tests {
    use workspace_catalog::Role;

    use super::*;
    use crate::caller::tests::caller;

    #[test]
    fn a_lookup_that_began_before_a_revocation_is_not_cached() {
        let caller = caller(Role::User);
        let cache = CallerCache::default();
        let count = || cache.inner.lock().callers.len();
        for reference in [KeyReference::Hash("0".into()), KeyReference::Id("key-1".into())] {
            cache.insert(reference, &caller, 0);
        }
        assert_eq!(count(), 2);
        cache.remove("key-1");
        assert_eq!(count(), 0);
        cache.insert(KeyReference::Id("key-1".into()), &caller, 0);
        assert_eq!(count(), 0);
    }
}
