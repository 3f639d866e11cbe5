//! Maps of user and group ids: which ids exist in a user namespace, and what they are outside.

use std::fs;

use rustix::process::Pid;

use crate::error::{Doing as _, Result};

/// Ids that exist inside, and what they are outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    /// The first inside.
    pub(crate) inside: u32,
    /// The first outside.
    pub(crate) outside: u32,
    /// How many.
    pub(crate) count: u32,
}

/// Number of the machine's own user namespace, the same on every kernel (`PROC_USER_INIT_INO`).
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether this process is in the machine's own user namespace, so that its superuser is the machine's.
pub(crate) fn is_initial_user_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() == INITIAL_USER_NAMESPACE)
}

impl Range {
    /// Whether there is a superuser inside, and so more than one user.
    pub(crate) fn has_root(self) -> bool {
        self.inside == 0
    }

    /// The same ids, each mapped to itself.
    pub(crate) fn as_itself(self) -> Self {
        Self { outside: self.inside, ..self }
    }

    /// The first id after it.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.inside) + u64::from(self.count)
    }
}

/// Ids that exist in the user namespace of this process, for users and for groups alike, in ascending order. What they
/// are outside of it does not matter here: `outside` is 0.
pub(crate) fn mapped() -> Result<Vec<Range>> {
    let read = |file: &str| fs::read_to_string(file).doing(format!("read {file}"));
    Ok(common(&read("/proc/self/uid_map")?, &read("/proc/self/gid_map")?))
}

/// Ids that are in both maps.
fn common(users: &str, groups: &str) -> Vec<Range> {
    let (users, groups) = (ranges(users), ranges(groups));
    let both = |one: &Range, other: &Range| {
        let start = one.inside.max(other.inside);
        let count = one.end().min(other.end()).checked_sub(start.into()).filter(|count| *count > 0)?;
        Some(Range { inside: start, outside: 0, count: u32::try_from(count).ok()? })
    };
    let mut found: Vec<Range> =
        users.iter().flat_map(|one| groups.iter().filter_map(|other| both(one, other))).collect();
    found.sort_by_key(|range| range.inside);
    found
}

/// Lines of a map: first id inside, first id outside, count.
pub(crate) fn ranges(map: &str) -> Vec<Range> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        Some(Range { inside: numbers.next()??, outside: numbers.next()??, count: numbers.next()?? })
    };
    map.lines().filter_map(range).collect()
}

/// Says which users and groups exist in the namespace of `child`, which was just made.
pub(crate) fn map(child: Pid, users: &[Range], groups: &[Range]) -> Result<()> {
    let lines = |ranges: &[Range]| -> String {
        let line = |range: &Range| format!("{} {} {}\n", range.inside, range.outside, range.count);
        ranges.iter().map(line).collect()
    };
    let write = |file: &str, text: &str| {
        fs::write(format!("/proc/{child}/{file}"), text).doing(format!("write {file} of a new namespace"))
    };
    // Without this nobody but the superuser may say which groups there are; and nothing inside needs to leave one.
    write("setgroups", "deny")?;
    write("gid_map", &lines(groups))?;
    write("uid_map", &lines(users))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_common_that_are_in_both_maps() {
        let found = |users: &str, groups: &str| -> Vec<(u32, u32)> {
            common(users, groups).into_iter().map(|range| (range.inside, range.count)).collect()
        };
        let all = "         0          0 4294967295\n";
        assert_eq!(found(all, all), [(0, u32::MAX)]);
        assert_eq!(found("0 100000 65536\n", all), [(0, 65_536)]);
        assert_eq!(found("0 1000 1\n1 100000 5000\n", "0 1000 1\n1 200000 4000\n"), [(0, 1), (1, 4000)]);
        assert_eq!(found("0 0 10\n", "20 0 10\n"), []);
        assert_eq!(found("", all), []);
    }
}
