//! UIDs of the host, one per sandbox.
//!
//! The kernel counts many resources per user: pages in pipes, file descriptors in flight, epoll watches. So
//! that sandboxes do not take from each other, root runs each with a UID of its own. Files do not change: on
//! disk they belong to the user that all sandboxes share (`sandbox_ids.rs`), and each sandbox sees them
//! through id-mapped mounts as its own. Layers, upper directories and snapshots are not affected.
//!
//! The kernel knows the UID of a running sandbox ([`of`]), so nothing has to be recorded, and sandboxes that
//! were started without one continue to work.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::process::geteuid;

use crate::error::{Context as _, HostError, Result};
use crate::machine;
use crate::mount::idmap::IdMap;
use crate::mount::overlay;
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::id_map::{self, IdRange};
use crate::namespace::sandbox_ids::{self, SANDBOX_UID};
use crate::process::Process;

/// First UID, and number of UIDs: beyond those of systemd for containers, and below those for foreign images.
const FIRST_UID: u32 = 0x7800_0000;
const UID_COUNT: u32 = 0x07fe_0000;

/// UIDs that are in use by sandboxes.
#[derive(Debug, Default)]
pub struct OwnUsers(Mutex<HashMap<String, u32>>);

impl OwnUsers {
    /// Allocates a UID for a sandbox. Returns the same one until it is released. It is derived from the
    /// sandbox's id; one that is in use is skipped.
    pub fn allocate(&self, sandbox: &str) -> u32 {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = given.get(sandbox) {
            return *user;
        }
        let user = next_free(sandbox_ids::hash(sandbox) % UID_COUNT, |user| {
            given.values().any(|taken| *taken == user)
        });
        given.insert(sandbox.to_owned(), user);
        user
    }

    /// Records the UID of a sandbox that another process started.
    pub fn record(&self, sandbox: &str, user: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(sandbox.to_owned(), user);
    }

    /// Releases the UID of a sandbox that has ended.
    pub fn release(&self, sandbox: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }
}

/// Returns the UID with this index, or the next one that is free.
fn next_free(mut number: u32, is_taken: impl Fn(u32) -> bool) -> u32 {
    while is_taken(FIRST_UID + number) {
        number = (number + 1) % UID_COUNT;
    }
    FIRST_UID + number
}

/// Returns the own UID of the sandbox with this first process. `None` if it has none.
pub fn of(process: &Process) -> Result<Option<u32>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = match std::fs::read_to_string(format!("/proc/{}/uid_map", process.pid())) {
        Ok(map) => own_uid(&map),
        // A process that was reaped has no readable directory in /proc any more.
        Err(_) if !process.is_running() => return Err(HostError::sandbox_ended()),
        Err(error) => return Err(error).context("look at the user ids of a sandbox"),
    };
    // If it still runs, the PID was not reused when the map was read.
    if user.is_some() && !process.is_running() {
        return Err(HostError::sandbox_ended());
    }
    Ok(user)
}

/// Returns the UID of the sandbox user from a map, if it is one of these.
fn own_uid(map: &str) -> Option<u32> {
    let user = id_map::parse(map).into_iter().find(|range| range.inside == SANDBOX_UID)?.outside;
    (FIRST_UID..FIRST_UID + UID_COUNT).contains(&user).then_some(user)
}

/// Checks that sandboxes over workspaces in `directory` can have UIDs of their own. The error is the reason
/// why not. `lazy` is true if some of them are over a lazy mount.
pub fn probe(holder: &NamespaceHolder, directory: &Path, lazy: bool) -> std::result::Result<(), String> {
    if *holder != NamespaceHolder::Machine {
        return Err(
            "only a server that root runs can give them, because files on the disk belong to one user"
                .to_owned(),
        );
    }
    let exist = |mapped: Vec<IdRange>| {
        let holds = |range: &IdRange| {
            range.inside <= sandbox_ids::FIRST_OWNER && u64::from(FIRST_UID + (UID_COUNT - 1)) < range.end()
        };
        mapped.iter().any(holds)
    };
    if !id_map::read().is_ok_and(exist) || !sandbox_ids::ids_of(holder).has_root() {
        return Err("the user namespace around the server has too few ids".to_owned());
    }
    if lazy && machine::kernel_version() < (6, 12) {
        return Err("the lazy mount can be shown to several users since Linux 6.12".to_owned());
    }
    overlay::probe_idmapped(directory, FIRST_UID + (UID_COUNT - 1)).map_err(|error| error.to_string())
}

/// Returns whether the mount at a path can be id-mapped.
pub fn can_idmap(path: &Path) -> bool {
    IdMap::for_user(FIRST_UID).and_then(|id_map| id_map.clone_mount(path)).is_ok()
}

/// Returns the id map of a sandbox: the shared ids, with its own UID for the sandbox user.
pub(crate) fn id_map_of(users: IdRange, own: Option<u32>) -> Vec<IdRange> {
    let Some(own) = own.filter(|_| users.has_root() && users.count > SANDBOX_UID) else { return vec![users] };
    let before = IdRange { count: SANDBOX_UID, ..users };
    let after = SANDBOX_UID + 1;
    let after = IdRange { inside: after, outside: users.outside + after, count: users.count - after };
    let own = IdRange { inside: SANDBOX_UID, outside: own, count: 1 };
    [before, own, after].into_iter().filter(|range| range.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: IdRange = IdRange { inside: 0, outside: 1_878_982_656, count: 65_536 };

    #[test]
    fn concurrent_sandboxes_have_different_uids() {
        let users = OwnUsers::default();
        let first = users.allocate("sbx-1");
        assert_eq!(users.allocate("sbx-1"), first);
        assert!((FIRST_UID..FIRST_UID + UID_COUNT).contains(&first));
        // Another sandbox whose id leads to the same UID.
        let after = OwnUsers::default();
        after.record("sbx-2", first);
        assert_eq!(after.allocate("sbx-1"), first + 1);
        after.release("sbx-2");
        after.release("sbx-1");
        assert_eq!(after.allocate("sbx-1"), first);
        // After the last one comes the first.
        let last = FIRST_UID + (UID_COUNT - 1);
        assert_eq!(next_free(UID_COUNT - 1, |user| user == last), FIRST_UID);
        assert_eq!(next_free(UID_COUNT - 1, |_| false), last);
    }

    #[test]
    fn the_uid_of_a_sandbox_is_read_from_its_map() {
        let lines = |ranges: Vec<IdRange>| -> String {
            ranges.iter().map(|one| format!("{} {} {}\n", one.inside, one.outside, one.count)).collect()
        };
        assert_eq!(own_uid(&lines(id_map_of(USERS, Some(FIRST_UID + 5)))), Some(FIRST_UID + 5));
        assert_eq!(own_uid(&lines(id_map_of(USERS, None))), None);
        assert_eq!(own_uid("0 0 4294967295\n"), None);
        assert_eq!(own_uid("1000 1000 1\n"), None);
    }

    #[test]
    fn id_maps_have_every_id_once() {
        let ends = |ranges: &[IdRange]| -> Vec<(u32, u32, u32)> {
            ranges.iter().map(|range| (range.inside, range.outside, range.count)).collect()
        };
        let own = FIRST_UID + 7;
        let first = USERS.outside;
        let inside = id_map_of(USERS, Some(own));
        assert_eq!(ends(&inside), [(0, first, 1000), (1000, own, 1), (1001, first + 1001, 64_535)]);
        let few = id_map_of(IdRange { count: 1001, ..USERS }, Some(own));
        assert_eq!(ends(&few), [(0, first, 1000), (1000, own, 1)]);
    }
}
