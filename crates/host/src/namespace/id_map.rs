//! Id maps: user and group ids of a user namespace, and the ids outside that they map to.

use std::fs;

use rustix::process::Pid;

use crate::error::{Context as _, Result};

/// Consecutive ids in a user namespace, and those outside that they map to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdRange {
    /// First id inside.
    pub(crate) inside: u32,
    /// First id outside.
    pub(crate) outside: u32,
    /// Number of ids.
    pub(crate) count: u32,
}

/// Inode of the initial user namespace, the same on every kernel: `PROC_USER_INIT_INO`, which no crate
/// defines.
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Returns true if this process is in the initial user namespace, so that root is root of the host.
pub(crate) fn is_initial_user_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self/ns/user").is_ok_and(|namespace| namespace.ino() == INITIAL_USER_NAMESPACE)
}

impl IdRange {
    /// Returns true if root is in the range. The ids of a sandbox start either with root, or with the sandbox user,
    /// which then is the only one (`sandbox_ids.rs`).
    pub(crate) fn has_root(self) -> bool {
        self.inside == 0
    }

    /// Returns the same ids mapped to themselves.
    pub(crate) fn identity(self) -> Self {
        Self { outside: self.inside, ..self }
    }

    /// Returns the first id after the range.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.inside) + u64::from(self.count)
    }
}

/// Reads the ids that exist in the user namespace of this process both as users and as groups, in ascending
/// order. The ids outside are not read: `outside` is 0.
pub(crate) fn read() -> Result<Vec<IdRange>> {
    let read = |file: &str| fs::read_to_string(file).context(format!("read {file}"));
    Ok(intersection(&read("/proc/self/uid_map")?, &read("/proc/self/gid_map")?))
}

/// Returns the ids that are in both maps.
fn intersection(users: &str, groups: &str) -> Vec<IdRange> {
    let (users, groups) = (parse(users), parse(groups));
    let overlap = |user_range: &IdRange, group_range: &IdRange| {
        let start = user_range.inside.max(group_range.inside);
        let count =
            user_range.end().min(group_range.end()).checked_sub(start.into()).filter(|count| *count > 0)?;
        Some(IdRange { inside: start, outside: 0, count: u32::try_from(count).ok()? })
    };
    let mut ranges: Vec<IdRange> = users
        .iter()
        .flat_map(|user_range| groups.iter().filter_map(|group_range| overlap(user_range, group_range)))
        .collect();
    ranges.sort_by_key(|range| range.inside);
    ranges
}

/// Parses a map. Each line has the first id inside, the first id outside and the count.
pub(crate) fn parse(map: &str) -> Vec<IdRange> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        Some(IdRange { inside: numbers.next()??, outside: numbers.next()??, count: numbers.next()?? })
    };
    map.lines().filter_map(range).collect()
}

/// Permission to call `setgroups` in a user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetGroups {
    /// For programs that switch users. Only root may create such a namespace.
    Allow,
    Deny,
}

/// Writes the id maps of the user namespace of `child`, which was just created.
pub(crate) fn write(child: Pid, users: &[IdRange], groups: &[IdRange]) -> Result<()> {
    // Unless `setgroups` is denied, only root may write the map of groups. Nothing inside needs to drop a group.
    write_with(child, users, groups, SetGroups::Deny)
}

/// Writes the id maps like [`write`].
pub(crate) fn write_with(
    child: Pid,
    users: &[IdRange],
    groups: &[IdRange],
    set_groups: SetGroups,
) -> Result<()> {
    let lines = |ranges: &[IdRange]| -> String {
        let line = |range: &IdRange| format!("{} {} {}\n", range.inside, range.outside, range.count);
        ranges.iter().map(line).collect()
    };
    let write = |file: &str, text: &str| {
        fs::write(format!("/proc/{child}/{file}"), text).context(format!("write {file} of a new namespace"))
    };
    if set_groups == SetGroups::Deny {
        write("setgroups", "deny")?;
    }
    write("gid_map", &lines(groups))?;
    write("uid_map", &lines(users))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersection_has_the_ids_of_both_maps() {
        let found = |users: &str, groups: &str| -> Vec<(u32, u32)> {
            intersection(users, groups).into_iter().map(|range| (range.inside, range.count)).collect()
        };
        let all = "         0          0 4294967295\n";
        assert_eq!(found(all, all), [(0, u32::MAX)]);
        assert_eq!(found("0 100000 65536\n", all), [(0, 65_536)]);
        assert_eq!(found("0 1000 1\n1 100000 5000\n", "0 1000 1\n1 200000 4000\n"), [(0, 1), (1, 4000)]);
        assert_eq!(found("0 0 10\n", "20 0 10\n"), []);
        assert_eq!(found("", all), []);
    }
}
