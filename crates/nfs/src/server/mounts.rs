//! List of mounts, as clients have announced them by MNT and UMNT. It is information for administrators and for the
//! reply to DUMP: access to files does not depend on it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Maximum number of mounts in the list.
const MOUNTS_MAX: usize = 1024;

/// List of mounts: address of the client and name of the export.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<BTreeSet<(IpAddr, String)>>);

impl Mounts {
    /// Adds a mount, unless the list is full. Returns false if the mount was in the list already.
    pub(crate) fn add(&self, client: IpAddr, export: &str) -> bool {
        let mut mounts = self.0.lock();
        let mount = (client, export.to_owned());
        let is_new = !mounts.contains(&mount);
        if mounts.len() < MOUNTS_MAX {
            mounts.insert(mount);
        }
        is_new
    }

    /// Removes a mount. Returns false if it was not in the list.
    pub(crate) fn remove(&self, client: IpAddr, export: &str) -> bool {
        self.0.lock().remove(&(client, export.to_owned()))
    }

    /// Removes all mounts of a client, and returns the names of their exports.
    pub(crate) fn remove_client(&self, client: IpAddr) -> Vec<String> {
        let mut mounts = self.0.lock();
        let (removed, kept) = std::mem::take(&mut *mounts).into_iter().partition(|(it, _)| *it == client);
        *mounts = kept;
        let removed: BTreeSet<(IpAddr, String)> = removed;
        removed.into_iter().map(|(_, export)| export).collect()
    }

    /// Removes all mounts of an export.
    pub(super) fn remove_export(&self, export: &str) {
        self.0.lock().retain(|(_, it)| it != export);
    }

    /// Returns the number of clients that have mounted an export.
    pub(super) fn count(&self, export: &str) -> usize {
        self.0.lock().iter().filter(|(_, it)| it == export).count()
    }

    /// Returns the names of the exports that a client has mounted.
    pub(crate) fn of_client(&self, client: IpAddr) -> Vec<String> {
        let mounts = self.0.lock();
        mounts.iter().filter(|(it, _)| *it == client).map(|(_, export)| export.clone()).collect()
    }
}
