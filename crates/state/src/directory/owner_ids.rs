//! Owners of the files of a root filesystem.
//!
//! Trees have no owners. In the tree of a root filesystem, the owner of a file or directory other than user 0
//! and group 0 is an extended attribute. On disk it is the owner of the file, as far as the ids exist there.
//! Symlinks have no attributes, so all of them belong to user 0.

use std::borrow::Cow;

use crate::node::Xattrs;

/// Attribute of a tree with the owner: UID and GID in decimal, separated by a colon.
const OWNER: &[u8] = b"user.workspace.owner";
/// Prefix of that attribute. An attribute of a program with the prefix gets another `workspace.` in a tree.
const PREFIX: &[u8] = b"user.workspace.";
const ESCAPE: &[u8] = b"workspace.";

/// Ids on disk of the owners in the tree of a root filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerIds {
    /// Id on disk of user and group 0.
    pub first: u32,
    /// Number of ids that exist. Files of others belong to user 0 on disk.
    pub count: u32,
}

impl OwnerIds {
    /// Returns UID and GID on disk of an entry with these attributes in the tree.
    pub fn owner_on_disk(self, xattrs: &Xattrs) -> (u32, u32) {
        let owner = xattrs.get(OWNER).and_then(|owner| parse(owner));
        let (uid, gid) = owner.filter(|(uid, gid)| (*uid).max(*gid) < self.count).unwrap_or_default();
        (self.first + uid, self.first + gid)
    }

    /// Returns the attributes on disk of an entry with these attributes in the tree: without the owner.
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

    /// Returns the attributes in the tree of an entry with these attributes and this owner on disk.
    pub fn xattrs_in_tree(self, xattrs: Xattrs, uid: u32, gid: u32) -> Xattrs {
        let escaped = |name: Vec<u8>| match name.strip_prefix(PREFIX) {
            Some(rest) => [PREFIX, ESCAPE, rest].concat(),
            None => name,
        };
        let mut xattrs: Xattrs = xattrs.into_iter().map(|(name, value)| (escaped(name), value)).collect();
        let inside = |id: u32| id.checked_sub(self.first).filter(|id| *id < self.count).unwrap_or_default();
        let owner = (inside(uid), inside(gid));
        if owner != (0, 0) {
            xattrs.insert(OWNER.to_vec(), format!("{}:{}", owner.0, owner.1).into_bytes());
        }
        xattrs
    }
}

/// Returns the attributes of an entry in a tree that belongs to this user and group.
pub fn owned_by(uid: u32, gid: u32) -> Xattrs {
    OwnerIds { first: 0, count: u32::MAX }.xattrs_in_tree(Xattrs::new(), uid, gid)
}

/// Parses an owner. It has one form, so that equal owners are equal trees.
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
    fn an_id_that_does_not_exist_is_that_of_root() {
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
    fn attributes_of_programs_are_not_taken_for_an_owner() {
        let names = [
            ("user.workspace.owner", "5:5"),
            ("user.workspace.workspace.owner", "6:6"),
            ("user.workspace.x", ""),
        ];
        let of_program = xattrs(&names);
        let in_tree = IDS.xattrs_in_tree(of_program.clone(), 100_001, 100_001);
        assert_eq!(IDS.owner_on_disk(&in_tree), (100_001, 100_001));
        assert_eq!(*OwnerIds::xattrs_on_disk(&in_tree), of_program);
    }
}
