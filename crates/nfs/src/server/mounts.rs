//! List of mounts, as clients have announced them. It is for administrators alone: nothing depends on it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Number of mounts that are remembered.
const MOUNTS_MAX: usize = 1024;

/// List of mounts: client and export.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<BTreeSet<(IpAddr, String)>>);

impl Mounts {
    /// Adds a mount, unless there are too many. Returns false if it was there already.
    pub(crate) fn add(&self, client: IpAddr, export: &str) -> bool {
        let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mount = (client, export.to_owned());
        let is_new = !mounts.contains(&mount);
        if mounts.len() < MOUNTS_MAX {
            mounts.insert(mount);
        }
        is_new
    }

    /// Removes a mount. Returns false if there was none.
    pub(crate) fn remove(&self, client: IpAddr, export: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(client, export.to_owned()))
    }

    /// Removes all mounts of a client, and returns their exports.
    pub(crate) fn remove_client(&self, client: IpAddr) -> Vec<String> {
        let mut mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (removed, kept) = std::mem::take(&mut *mounts).into_iter().partition(|(it, _)| *it == client);
        *mounts = kept;
        let removed: BTreeSet<(IpAddr, String)> = removed;
        removed.into_iter().map(|(_, export)| export).collect()
    }

    pub(super) fn remove_export(&self, export: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, it)| it != export);
    }

    pub(super) fn count(&self, export: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|(_, it)| it == export).count()
    }

    /// Returns the mounts of a client.
    pub(crate) fn of_client(&self, client: IpAddr) -> Vec<String> {
        let mounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.iter().filter(|(it, _)| *it == client).map(|(_, export)| export.clone()).collect()
    }
}
