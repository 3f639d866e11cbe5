//! Owners of the files in the root filesystem of a sandbox.
//!
//! Nodes of a tree have no owner. In the tree of a root filesystem, an extended attribute records the owner of a file
//! or directory, unless that is user 0 and group 0. On disk, the ids are shifted into the range of ids of the sandbox.
//! Symlinks have no user attributes, so all of them belong to user 0.

use std::borrow::Cow;

use crate::node::Xattrs;

/// Extended attribute of a node with the owner: UID and GID in decimal, separated by a colon.
const OWNER: &[u8] = b"user.workspace.owner";
/// Prefix of [`OWNER`]. A file may already have an attribute with this prefix. It is escaped in the tree: [`ESCAPE`] is
/// inserted after the prefix.
const PREFIX: &[u8] = b"user.workspace.";
/// Second part of the name of an escaped attribute, after [`PREFIX`].
const ESCAPE: &[u8] = b"workspace.";

/// Range of UIDs and GIDs on disk for the owners that the tree of a root filesystem records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerIds {
    /// Id on disk of user 0 and of group 0.
    pub first: u32,
    /// Number of ids in the range. A file whose UID or GID is not in the range belongs to user 0 and group 0 on disk.
    pub count: u32,
}

impl OwnerIds {
    /// Returns UID and GID on disk for an entry with these attributes in the tree.
    pub fn owner_on_disk(self, xattrs: &Xattrs) -> (u32, u32) {
        let owner = xattrs.get(OWNER).and_then(|owner| parse(owner));
        let (uid, gid) = owner.filter(|(uid, gid)| (*uid).max(*gid) < self.count).unwrap_or_default();
        (self.first + uid, self.first + gid)
    }

    /// Returns the attributes on disk for an entry with these attributes in the tree: removes the owner and unescapes.
    pub fn xattrs_on_disk(xattrs: &Xattrs) -> Cow<'_, Xattrs> {
        if !xattrs.keys().any(|name| name.starts_with(PREFIX)) {
            return Cow::Borrowed(xattrs);
        }
        let unescaped = |name: &[u8]| match name.strip_prefix(PREFIX) {
            Some(rest) => rest.strip_prefix(ESCAPE).map(|rest| [PREFIX, rest].concat()),
            None => Some(name.to_vec()),
        };
        let kept = xattrs.iter().filter_map(|(name, value)| Some((unescaped(name)?, value.clone())));
        Cow::Owned(kept.collect())
    }

    /// Returns the attributes in the tree for an entry with these attributes and this owner on disk. An id outside of
    /// the range becomes 0.
    pub fn xattrs_in_tree(self, xattrs: Xattrs, uid: u32, gid: u32) -> Xattrs {
        let escaped = |name: Vec<u8>| match name.strip_prefix(PREFIX) {
            Some(rest) => [PREFIX, ESCAPE, rest].concat(),
            None => name,
        };
        let mut xattrs: Xattrs = xattrs.into_iter().map(|(name, value)| (escaped(name), value)).collect();
        let in_range = |id: u32| id.checked_sub(self.first).filter(|id| *id < self.count).unwrap_or_default();
        let owner = (in_range(uid), in_range(gid));
        if owner != (0, 0) {
            xattrs.insert(OWNER.to_vec(), format!("{}:{}", owner.0, owner.1).into_bytes());
        }
        xattrs
    }
}

/// Returns the extended attributes in a tree for an entry that belongs to this user and group: none for user 0 and
/// group 0.
pub fn owned_by(uid: u32, gid: u32) -> Xattrs {
    OwnerIds { first: 0, count: u32::MAX }.xattrs_in_tree(Xattrs::new(), uid, gid)
}

/// Parses the value of [`OWNER`]. Only the form that `xattrs_in_tree` writes is valid, so that trees with equal owners
/// are equal.
fn parse(owner: &[u8]) -> Option<(u32, u32)> {
    let (uid, gid) = std::str::from_utf8(owner).ok()?.split_once(':')?;
    let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
    (format!("{uid}:{gid}").as_bytes() == owner).then_some((uid, gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: OwnerIds = OwnerIds { first: 100_000, count: 65_536 };

    fn xattrs(names: &[(&str, &str)]) -> Xattrs {
        names.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn an_owner_round_trips() {
        for (uid, gid) in [(0, 0), (0, 42), (1000, 1000), (65_535, 0)] {
            let in_tree = IDS.xattrs_in_tree(xattrs(&[("user.a", "b")]), 100_000 + uid, 100_000 + gid);
            assert_eq!(in_tree.len(), if (uid, gid) == (0, 0) { 1 } else { 2 });
            assert_eq!(IDS.owner_on_disk(&in_tree), (100_000 + uid, 100_000 + gid));
            assert_eq!(*OwnerIds::xattrs_on_disk(&in_tree), xattrs(&[("user.a", "b")]));
        }
        assert_eq!(owned_by(1000, 7), xattrs(&[("user.workspace.owner", "1000:7")]));
    }

    #[test]
    fn an_owner_outside_of_the_range_becomes_root() {
        for owner in
            ["65536:0", "0:65536", "4294967296:0", "-1:0", "+5:5", "05:5", "5", "5:5:5", "", "a:b", "5:5 "]
        {
            let in_tree = xattrs(&[("user.workspace.owner", owner)]);
            assert_eq!(IDS.owner_on_disk(&in_tree), (100_000, 100_000), "{owner}");
        }
        // Ids outside of the range on disk.
        for id in [0, 99_999, 165_536, u32::MAX] {
            assert_eq!(IDS.xattrs_in_tree(Xattrs::new(), id, id), Xattrs::new());
        }
    }

    #[test]
    fn existing_attributes_with_the_prefix_are_not_taken_for_an_owner() {
        let names = [
            ("user.workspace.owner", "5:5"),
            ("user.workspace.workspace.owner", "6:6"),
            ("user.workspace.x", ""),
        ];
        let on_disk = xattrs(&names);
        let in_tree = IDS.xattrs_in_tree(on_disk.clone(), 100_001, 100_001);
        assert_eq!(IDS.owner_on_disk(&in_tree), (100_001, 100_001));
        assert_eq!(*OwnerIds::xattrs_on_disk(&in_tree), on_disk);
    }
}
