//! Ids of sandboxes on the host.
//!
//! If root launches a sandbox, ids inside map to ids that no user of the host has. These own the files of
//! workspaces. All sandboxes map to the same ids, so that they can share layers. An ordinary user can map one
//! id only, their own.

use std::sync::OnceLock;

use crate::error::Result;
use crate::namespace::holder::NamespaceHolder;
use crate::namespace::id_map::{self, IdRange};

/// User and group id of the sandbox user, inside.
pub(crate) const SANDBOX_UID: u32 = 1000;

/// First id of sandboxes on a host with all ids: the last range for containers (systemd, `UIDS-GIDS`).
const FIRST_ID: u32 = 1_878_982_656;
/// Number of ids of a sandbox on a host with all ids.
const ID_COUNT: u32 = 65_536;
/// Number of ids of a sandbox in a user namespace with few ids, such as that of a container: all up to its user.
const NESTED_ID_COUNT: u32 = SANDBOX_UID + 1;
/// First id of sandboxes in a user namespace of 65,536 ids, as containers have it: beyond the users of most images.
const NESTED_FIRST_ID: u32 = 32_768;

/// First id that owns user namespaces of sandboxes: after systemd's range for containers.
pub(crate) const FIRST_NAMESPACE_OWNER: u32 = 0x7000_0000;
/// Number of ids that own user namespaces of sandboxes. The dedicated UIDs of sandboxes follow (`dedicated_uids.rs`).
const NAMESPACE_OWNER_COUNT: u32 = 0x0800_0000;

/// Returns the ids that exist in sandboxes with this holder.
pub(crate) fn ids_of(holder: &NamespaceHolder) -> IdRange {
    static ROOT_IDS: OnceLock<IdRange> = OnceLock::new();
    match holder {
        NamespaceHolder::None => *ROOT_IDS.get_or_init(|| choose_root_ids(id_map::read())),
        NamespaceHolder::Process(_) => current_user_id(),
    }
}

/// Returns the UID and GID that the user of all sandboxes with this holder has on the host, unless a sandbox has a
/// dedicated UID. `None` without root: then the sandbox user is the current user.
pub fn shared_sandbox_ids(holder: &NamespaceHolder) -> Option<(u32, u32)> {
    let ids = ids_of(holder);
    let user = ids.outside + SANDBOX_UID;
    ids.has_root().then_some((user, user))
}

/// Returns the host id of user and group 0 of sandboxes, and the number of ids that they have. `None` if no root
/// is mapped: then the sandbox user is the only one.
pub fn root_ids(holder: &NamespaceHolder) -> Option<(u32, u32)> {
    let ids = ids_of(holder);
    ids.has_root().then_some((ids.outside, ids.count))
}

/// Returns the id that owns the user namespace of a sandbox. `None` if such ids do not exist, or without
/// root.
///
/// The kernel counts resources of a user namespace (inotify, pending signals, message queues, locked memory,
/// namespaces) for its owner as well, with one limit per owner. If root owned all of them, sandboxes would
/// compete with each other and with the host. No file belongs to such an id, and no process runs as one. It
/// is derived from the sandbox's id, so it need not be recorded. A sandbox with a dedicated UID has its
/// own owner; other sandboxes whose hashes collide share the limits.
pub(crate) fn namespace_owner(
    holder: &NamespaceHolder,
    sandbox: &str,
    dedicated_uid: Option<u32>,
) -> Option<u32> {
    let exists = || {
        let last = FIRST_NAMESPACE_OWNER + (NAMESPACE_OWNER_COUNT - 1);
        id_map::read().is_ok_and(|mapped| {
            mapped.iter().any(|range| range.inside <= FIRST_NAMESPACE_OWNER && u64::from(last) < range.end())
        })
    };
    (*holder == NamespaceHolder::None && exists()).then(|| {
        FIRST_NAMESPACE_OWNER + dedicated_uid.unwrap_or_else(|| hash(sandbox)) % NAMESPACE_OWNER_COUNT
    })
}

/// Returns the FNV-1a hash of a text.
pub(crate) fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Returns the map of the sandbox user to the current user. The id of the current user is 0, because this process is
/// root, or the map is used in the user namespace of a holder, where the ordinary user is root.
fn current_user_id() -> IdRange {
    IdRange { inside: SANDBOX_UID, outside: 0, count: 1 }
}

/// Returns the ids to which a server that runs as root maps those of sandboxes: ids that no user has. If the
/// server itself is in a user namespace with too few ids, such as that of a container, it is root's own id.
fn choose_root_ids(mapped: Result<Vec<IdRange>>) -> IdRange {
    let Ok(mapped) = mapped else { return current_user_id() };
    let holds = |first: u32, count: u32| {
        let end = u64::from(first) + u64::from(count);
        mapped.iter().any(|range| range.inside <= first && end <= range.end())
    };
    if holds(FIRST_ID, ID_COUNT) {
        return IdRange { inside: 0, outside: FIRST_ID, count: ID_COUNT };
    }
    if holds(NESTED_FIRST_ID, NESTED_ID_COUNT) {
        return IdRange { inside: 0, outside: NESTED_FIRST_ID, count: NESTED_ID_COUNT };
    }
    // The last ids that exist, unless root is one of them.
    let last = mapped
        .iter()
        .filter_map(|range| u32::try_from(range.end() - 1).ok()?.checked_sub(NESTED_ID_COUNT - 1));
    match last.filter(|first| *first > 0 && holds(*first, NESTED_ID_COUNT)).max() {
        Some(outside) => IdRange { inside: 0, outside, count: NESTED_ID_COUNT },
        None => current_user_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ids_exist_in_the_namespace_of_the_server() {
        let chosen = |mapped: &[(u32, u32)]| {
            let range = |(inside, count): &(u32, u32)| IdRange { inside: *inside, outside: 0, count: *count };
            let chosen = choose_root_ids(Ok(mapped.iter().map(range).collect()));
            (chosen.inside, chosen.outside, chosen.count)
        };
        assert_eq!(chosen(&[(0, u32::MAX)]), (0, 1_878_982_656, 65_536));
        assert_eq!(chosen(&[(0, 65_536)]), (0, 32_768, 1_001));
        assert_eq!(chosen(&[(0, 1), (1, 20_000)]), (0, 19_000, 1_001));
        assert_eq!(chosen(&[(0, 1_002)]), (0, 1, 1_001));
        // Not enough beside root.
        assert_eq!(chosen(&[(0, 1_001)]), (1000, 0, 1));
        assert_eq!(chosen(&[(0, 1)]), (1000, 0, 1));
        assert_eq!(chosen(&[]), (1000, 0, 1));
    }
}
