//! Ids that users of sandboxes have on the machine.
//!
//! Where the superuser launches, users inside are ids that belong to nobody, and files of workspaces are owned by them.
//! All sandboxes have the same ones, so that they can share layers. An ordinary user has one id to give: his own.

use std::sync::OnceLock;

use crate::error::Result;
use crate::namespace::holder::Holder;
use crate::namespace::id_map::{self, Range};

/// The user of a sandbox, inside.
pub(crate) const USER: u32 = 1000;

/// First of the ids of sandboxes where all ids exist: the last of those for containers (systemd, `UIDS-GIDS`).
const FIRST: u32 = 1_878_982_656;
/// So many ids a sandbox has there.
const COUNT: u32 = 65_536;
/// So many ids a sandbox has where few exist: all up to its user.
const FEW: u32 = USER + 1;
/// First of these in a namespace of 65,536 ids, which containers have: beyond the users of most images.
const FIRST_OF_FEW: u32 = 32_768;

/// First of the ids that own user namespaces of sandboxes, and how many there are: beyond all that systemd gives away.
pub(crate) const FIRST_OWNER: u32 = 0x7000_0000;
const OWNERS: u32 = 0x0800_0000;

/// Who exists inside a sandbox that is launched with this holder.
pub(crate) fn users(holder: &Holder) -> Range {
    static OF_SUPERUSER: OnceLock<Range> = OnceLock::new();
    match holder {
        Holder::Machine => *OF_SUPERUSER.get_or_init(|| of_superuser(id_map::mapped())),
        Holder::Process(_) => alone(),
    }
}

/// The user and group to whom the user inside is mapped; nobody in particular where no superuser launches: then that is
/// whoever runs this.
pub fn owner(holder: &Holder) -> Option<(u32, u32)> {
    let users = users(holder);
    let user = users.outside + USER;
    users.has_root().then_some((user, user))
}

/// An id to own the user namespace of a sandbox; none where such ids do not exist, or nobody but the superuser
/// himself may be it.
///
/// The kernel counts what is taken in a user namespace (inotify, pending signals, message queues, locked memory,
/// namespaces) for its owner as well, with one bound for each owner. If the superuser owned all of them, sandboxes would
/// take from each other and from the machine. No file belongs to an owner and no process runs as one. Of a sandbox it
/// is always the same, and nothing has to be remembered. A sandbox that runs as a user of its `own` has an owner that no
/// other has; of the others, two that have the same by chance share these counts.
pub(crate) fn owner_of_namespace(holder: &Holder, sandbox: &str, own: Option<u32>) -> Option<u32> {
    let exists = || {
        let last = FIRST_OWNER + (OWNERS - 1);
        id_map::mapped().is_ok_and(|mapped| {
            mapped.iter().any(|range| range.inside <= FIRST_OWNER && u64::from(last) < range.end())
        })
    };
    (*holder == Holder::Machine && exists())
        .then(|| FIRST_OWNER + own.unwrap_or_else(|| hash(sandbox)) % OWNERS)
}

/// FNV-1a.
pub(crate) fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The one user of a sandbox is whoever launches it.
fn alone() -> Range {
    Range { inside: USER, outside: 0, count: 1 }
}

/// Ids that the superuser gives: those of nobody as far as they exist. In a user namespace around the server, such as that of a
/// container, there may be too few; then he gives his own.
fn of_superuser(mapped: Result<Vec<Range>>) -> Range {
    let Ok(mapped) = mapped else { return alone() };
    let holds = |first: u32, count: u32| {
        let end = u64::from(first) + u64::from(count);
        mapped.iter().any(|range| range.inside <= first && end <= range.end())
    };
    if holds(FIRST, COUNT) {
        return Range { inside: 0, outside: FIRST, count: COUNT };
    }
    if holds(FIRST_OF_FEW, FEW) {
        return Range { inside: 0, outside: FIRST_OF_FEW, count: FEW };
    }
    // The last ones, without the superuser.
    let last = mapped.iter().filter_map(|range| u32::try_from(range.end() - 1).ok()?.checked_sub(FEW - 1));
    match last.filter(|first| *first > 0 && holds(*first, FEW)).max() {
        Some(outside) => Range { inside: 0, outside, count: FEW },
        None => alone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_sandboxes_exist_in_the_namespace_around_the_server() {
        let chosen = |mapped: &[(u32, u32)]| {
            let range = |(inside, count): &(u32, u32)| Range { inside: *inside, outside: 0, count: *count };
            let chosen = of_superuser(Ok(mapped.iter().map(range).collect()));
            (chosen.inside, chosen.outside, chosen.count)
        };
        assert_eq!(chosen(&[(0, u32::MAX)]), (0, 1_878_982_656, 65_536));
        assert_eq!(chosen(&[(0, 65_536)]), (0, 32_768, 1_001));
        assert_eq!(chosen(&[(0, 1), (1, 20_000)]), (0, 19_000, 1_001));
        assert_eq!(chosen(&[(0, 1_002)]), (0, 1, 1_001));
        // Not enough beside the superuser himself.
        assert_eq!(chosen(&[(0, 1_001)]), (1000, 0, 1));
        assert_eq!(chosen(&[(0, 1)]), (1000, 0, 1));
        assert_eq!(chosen(&[]), (1000, 0, 1));
    }
}
