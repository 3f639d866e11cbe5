//! Dedicated host UIDs, one per sandbox.
//!
//! The kernel limits many resources per UID: pages in pipes, file descriptors in flight, epoll watches. A
//! server that runs as root gives each sandbox its own UID, so that one cannot exhaust the limits of another.
//! On disk, files belong to the user that all sandboxes share (`sandbox_ids.rs`); each sandbox sees them as
//! its own through id-mapped mounts. Layers, upper directories and snapshots are not affected.
//!
//! The UID of a running sandbox can be read from the kernel ([`uid_of`]), so nothing has to be recorded, and
//! sandboxes that were started without one continue to work.

use std::collections::HashMap;
use std::path::Path;

use parking_lot::Mutex;
use rustix::process::geteuid;

use crate::error::{Context as _, HostError, Result};
use crate::host_status;
use crate::mount::idmap::IdMap;
use crate::mount::overlay;
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::id_map::{self, IdRange};
use crate::namespace::sandbox_ids::{self, SANDBOX_UID};
use crate::process::Process;
use crate::sandbox::lazy_mount::LazyMount;

/// First of [`UID_COUNT`] UIDs, between systemd's ranges for containers and for foreign images.
const FIRST_UID: u32 = 0x7800_0000;
const UID_COUNT: u32 = 0x07fe_0000;

/// Allocator of UIDs. The map has the UIDs in use, by sandbox id.
#[derive(Debug, Default)]
pub struct DedicatedUids(Mutex<HashMap<String, u32>>);

impl DedicatedUids {
    /// Allocates a UID for a sandbox, or returns the one it has. The UID is derived from the sandbox id; UIDs
    /// in use are skipped.
    pub fn allocate(&self, sandbox: &str) -> u32 {
        let mut in_use = self.0.lock();
        if let Some(uid) = in_use.get(sandbox) {
            return *uid;
        }
        let uid = next_free(sandbox_ids::hash(sandbox) % UID_COUNT, |uid| {
            in_use.values().any(|taken| *taken == uid)
        });
        in_use.insert(sandbox.to_owned(), uid);
        uid
    }

    /// Records the UID of a sandbox that another process started.
    pub fn record(&self, sandbox: &str, uid: u32) {
        self.0.lock().insert(sandbox.to_owned(), uid);
    }

    /// Releases the UID of a sandbox that has exited.
    pub fn release(&self, sandbox: &str) {
        self.0.lock().remove(sandbox);
    }
}

/// Returns the UID with this index, or the next one that is free.
fn next_free(mut index: u32, is_taken: impl Fn(u32) -> bool) -> u32 {
    while is_taken(FIRST_UID + index) {
        index = (index + 1) % UID_COUNT;
    }
    FIRST_UID + index
}

/// Returns the dedicated UID of the sandbox whose first process is `process`; `None` if it has none.
pub fn uid_of(process: &Process) -> Result<Option<u32>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let uid = match std::fs::read_to_string(format!("/proc/{}/uid_map", process.pid())) {
        Ok(map) => dedicated_uid(&map),
        // A reaped process has no readable directory in /proc.
        Err(_) if !process.is_running() => return Err(HostError::sandbox_ended()),
        Err(error) => return Err(error).context("read the UID map of a sandbox"),
    };
    // If it is still running, its PID had not been reused when the map was read.
    if uid.is_some() && !process.is_running() {
        return Err(HostError::sandbox_ended());
    }
    Ok(uid)
}

/// Returns the host UID of the sandbox user from a map, if it is a dedicated one.
fn dedicated_uid(map: &str) -> Option<u32> {
    let uid = id_map::parse(map).into_iter().find(|range| range.inside == SANDBOX_UID)?.outside;
    (FIRST_UID..FIRST_UID + UID_COUNT).contains(&uid).then_some(uid)
}

/// Checks that sandboxes with workspaces in `directory` can have dedicated UIDs. The error is the reason why
/// not.
pub fn probe(holder: &NamespaceHolder, directory: &Path, lazy: LazyMount) -> std::result::Result<(), String> {
    if *holder != NamespaceHolder::None {
        return Err(
            "only a server that runs as root can assign them, because files on disk belong to one user"
                .to_owned(),
        );
    }
    let is_mapped = |ranges: Vec<IdRange>| {
        // The owners of user namespaces (`sandbox_ids::namespace_owner`), whose ids precede the dedicated UIDs, must be
        // mapped, too.
        let contains = |range: &IdRange| {
            range.inside <= sandbox_ids::FIRST_NAMESPACE_OWNER
                && u64::from(FIRST_UID + (UID_COUNT - 1)) < range.end()
        };
        ranges.iter().any(contains)
    };
    if !id_map::read().is_ok_and(is_mapped) || !sandbox_ids::ids_of(holder).has_root() {
        return Err("the user namespace of the server maps too few ids".to_owned());
    }
    if lazy == LazyMount::Used && host_status::kernel_version() < (6, 12) {
        return Err("id-mapping the lazy mount needs Linux 6.12".to_owned());
    }
    overlay::probe_idmapped(directory, FIRST_UID + (UID_COUNT - 1)).map_err(|error| error.to_string())
}

/// Returns whether the mount at a path can be id-mapped.
pub fn can_idmap(path: &Path) -> bool {
    IdMap::for_dedicated_uid(FIRST_UID).and_then(|id_map| id_map.clone_mount(path)).is_ok()
}

/// Returns the id map of a sandbox: the ids that all sandboxes share, with the dedicated UID for the sandbox
/// user.
pub(crate) fn id_map_of(shared: IdRange, dedicated_uid: Option<u32>) -> Vec<IdRange> {
    let is_replaceable = shared.has_root() && shared.count > SANDBOX_UID;
    let Some(dedicated_uid) = dedicated_uid.filter(|_| is_replaceable) else { return vec![shared] };
    let before = IdRange { count: SANDBOX_UID, ..shared };
    let after = SANDBOX_UID + 1;
    let after = IdRange { inside: after, outside: shared.outside + after, count: shared.count - after };
    let dedicated = IdRange { inside: SANDBOX_UID, outside: dedicated_uid, count: 1 };
    [before, dedicated, after].into_iter().filter(|range| range.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: IdRange = IdRange { inside: 0, outside: 1_878_982_656, count: 65_536 };

    #[test]
    fn concurrent_sandboxes_have_different_uids() {
        let uids = DedicatedUids::default();
        let first = uids.allocate("sbx-1");
        assert_eq!(uids.allocate("sbx-1"), first);
        assert!((FIRST_UID..FIRST_UID + UID_COUNT).contains(&first));
        // A UID that is in use is skipped.
        let after = DedicatedUids::default();
        after.record("sbx-2", first);
        assert_eq!(after.allocate("sbx-1"), first + 1);
        after.release("sbx-2");
        after.release("sbx-1");
        assert_eq!(after.allocate("sbx-1"), first);
        // Wraps around at the end.
        let last = FIRST_UID + (UID_COUNT - 1);
        assert_eq!(next_free(UID_COUNT - 1, |user| user == last), FIRST_UID);
        assert_eq!(next_free(UID_COUNT - 1, |_| false), last);
    }

    #[test]
    fn the_uid_of_a_sandbox_is_read_from_its_map() {
        let lines = |ranges: Vec<IdRange>| -> String {
            ranges.iter().map(|one| format!("{} {} {}\n", one.inside, one.outside, one.count)).collect()
        };
        assert_eq!(dedicated_uid(&lines(id_map_of(SHARED, Some(FIRST_UID + 5)))), Some(FIRST_UID + 5));
        assert_eq!(dedicated_uid(&lines(id_map_of(SHARED, None))), None);
        assert_eq!(dedicated_uid("0 0 4294967295\n"), None);
        assert_eq!(dedicated_uid("1000 1000 1\n"), None);
    }

    #[test]
    fn id_maps_have_every_id_once() {
        let fields = |ranges: &[IdRange]| -> Vec<(u32, u32, u32)> {
            ranges.iter().map(|range| (range.inside, range.outside, range.count)).collect()
        };
        let uid = FIRST_UID + 7;
        let first = SHARED.outside;
        let inside = id_map_of(SHARED, Some(uid));
        assert_eq!(fields(&inside), [(0, first, 1000), (1000, uid, 1), (1001, first + 1001, 64_535)]);
        let few = id_map_of(IdRange { count: 1001, ..SHARED }, Some(uid));
        assert_eq!(fields(&few), [(0, first, 1000), (1000, uid, 1)]);
    }
}
