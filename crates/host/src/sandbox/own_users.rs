//! A user of the machine for each sandbox.
//!
//! The kernel counts much of what a process takes for its user: pages in pipes, descriptors on their way through sockets,
//! watches of epoll. So that no sandbox takes from another, the superuser runs each as a user of its own. Files stay as
//! they are: on the disk they belong to the user that all sandboxes share (`ids.rs`), and each sandbox sees them through mounts
//! that show them as its own user's (idmapped mounts). Layers, uppers and snapshots know nothing of this.
//!
//! The kernel knows the user of a sandbox for as long as the sandbox lives ([`of`]): nothing else has to be remembered,
//! and sandboxes that were started without one go on as they are.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::process::geteuid;

use crate::error::{Doing as _, HostError, Result};
use crate::machine;
use crate::mount::idmap::Shown;
use crate::mount::overlay;
use crate::namespace::holder::Holder;
use crate::namespace::id_map::{self, Range};
use crate::namespace::sandbox_ids::{self, USER};
use crate::process::Process;

/// First of the users, and how many there are: beyond those that systemd gives to containers, and below those that it
/// gives to files of foreign images.
const FIRST: u32 = 0x7800_0000;
const COUNT: u32 = 0x07fe_0000;

/// Users that sandboxes have or are about to get.
#[derive(Debug, Default)]
pub struct OwnUsers(Mutex<HashMap<String, u32>>);

impl OwnUsers {
    /// A user for a sandbox, always the same until it is given back. Which one follows from the sandbox's id; one that
    /// another has is passed over.
    pub fn give(&self, sandbox: &str) -> u32 {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = given.get(sandbox) {
            return *user;
        }
        let user =
            free(sandbox_ids::hash(sandbox) % COUNT, |user| given.values().any(|taken| *taken == user));
        given.insert(sandbox.to_owned(), user);
        user
    }

    /// Notes the user of a sandbox that another process started.
    pub fn found(&self, sandbox: &str, user: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(sandbox.to_owned(), user);
    }

    /// Others may have the user of a sandbox, which has ended.
    pub fn give_back(&self, sandbox: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }
}

/// The user of this number, or the next that is not taken.
fn free(mut number: u32, is_taken: impl Fn(u32) -> bool) -> u32 {
    while is_taken(FIRST + number) {
        number = (number + 1) % COUNT;
    }
    FIRST + number
}

/// The user of its own that a sandbox has whose first process this is; none if it has none.
pub fn of(process: &Process) -> Result<Option<u32>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = match std::fs::read_to_string(format!("/proc/{}/uid_map", process.pid())) {
        Ok(map) => own(&map),
        // A process that was reaped has no directory in /proc, or does not answer there.
        Err(_) if !process.is_running() => return Err(HostError::sandbox_ended()),
        Err(error) => return Err(error).doing("look at the user ids of a sandbox"),
    };
    // Whoever has the number now was the one who was asked, all the while.
    if user.is_some() && !process.is_running() {
        return Err(HostError::sandbox_ended());
    }
    Ok(user)
}

/// The user of those here that a map of users makes of the user inside.
fn own(map: &str) -> Option<u32> {
    let user = id_map::ranges(map).into_iter().find(|range| range.inside == USER)?.outside;
    (FIRST..FIRST + COUNT).contains(&user).then_some(user)
}

/// Says why sandboxes over workspaces in `directory` cannot have users of their own; nothing if they can. `lazy` says that a
/// lazy view is to be under some of them.
pub fn probe(holder: &Holder, directory: &Path, lazy: bool) -> std::result::Result<(), String> {
    if *holder != Holder::Machine {
        return Err(
            "only a server that root runs can give them, because files on the disk belong to one user"
                .to_owned(),
        );
    }
    let exist = |mapped: Vec<Range>| {
        let holds = |range: &Range| {
            range.inside <= sandbox_ids::FIRST_OWNER && u64::from(FIRST + (COUNT - 1)) < range.end()
        };
        mapped.iter().any(holds)
    };
    if !id_map::mapped().is_ok_and(exist) || !sandbox_ids::users(holder).has_root() {
        return Err("the user namespace around the server has too few ids".to_owned());
    }
    if lazy && machine::kernel() < (6, 12) {
        return Err("the lazy view can be shown to several users since Linux 6.12".to_owned());
    }
    overlay::probe_shown(directory, FIRST + (COUNT - 1)).map_err(|error| error.to_string())
}

/// Tells if the mount at a path can be shown to the user of a sandbox.
pub fn can_show(path: &Path) -> bool {
    Shown::to(FIRST).and_then(|shown| shown.take_up(path)).is_ok()
}

/// The users and groups of a sandbox: those that all have, but for its own.
pub(crate) fn map_of(users: Range, own: Option<u32>) -> Vec<Range> {
    let Some(own) = own.filter(|_| users.has_root() && users.count > USER) else { return vec![users] };
    let before = Range { count: USER, ..users };
    let after = USER + 1;
    let after = Range { inside: after, outside: users.outside + after, count: users.count - after };
    let own = Range { inside: USER, outside: own, count: 1 };
    [before, own, after].into_iter().filter(|range| range.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: Range = Range { inside: 0, outside: 1_878_982_656, count: 65_536 };

    #[test]
    fn no_two_sandboxes_have_one_user_at_the_same_time() {
        let users = OwnUsers::default();
        let first = users.give("sbx-1");
        assert_eq!(users.give("sbx-1"), first);
        assert!((FIRST..FIRST + COUNT).contains(&first));
        // Another whose id leads to the same user.
        let after = OwnUsers::default();
        after.found("elsewhere", first);
        assert_eq!(after.give("sbx-1"), first + 1);
        after.give_back("elsewhere");
        after.give_back("sbx-1");
        assert_eq!(after.give("sbx-1"), first);
        // After the last comes the first.
        let last = FIRST + (COUNT - 1);
        assert_eq!(free(COUNT - 1, |user| user == last), FIRST);
        assert_eq!(free(COUNT - 1, |_| false), last);
    }

    #[test]
    fn the_user_of_a_sandbox_is_read_from_its_map() {
        let lines = |ranges: Vec<Range>| -> String {
            ranges.iter().map(|one| format!("{} {} {}\n", one.inside, one.outside, one.count)).collect()
        };
        assert_eq!(own(&lines(map_of(USERS, Some(FIRST + 5)))), Some(FIRST + 5));
        assert_eq!(own(&lines(map_of(USERS, None))), None);
        assert_eq!(own("0 0 4294967295\n"), None);
        assert_eq!(own("1000 1000 1\n"), None);
    }

    #[test]
    fn maps_have_every_id_once() {
        let ends = |ranges: &[Range]| -> Vec<(u32, u32, u32)> {
            ranges.iter().map(|range| (range.inside, range.outside, range.count)).collect()
        };
        let own = FIRST + 7;
        let first = USERS.outside;
        let inside = map_of(USERS, Some(own));
        assert_eq!(ends(&inside), [(0, first, 1000), (1000, own, 1), (1001, first + 1001, 64_535)]);
        let few = map_of(Range { count: 1001, ..USERS }, Some(own));
        assert_eq!(ends(&few), [(0, first, 1000), (1000, own, 1)]);
    }
}
