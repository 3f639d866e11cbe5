//! Procedures of NFSv3 and MOUNT v3: their numbers, their names, and which of them change files.

/// Procedure of NFSv3 or MOUNT v3, as metrics and logs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of RFC 1813")]
pub enum Operation {
    Null,
    GetAttr,
    SetAttr,
    Lookup,
    Access,
    ReadLink,
    Read,
    Write,
    Create,
    MkDir,
    SymLink,
    MkNod,
    Remove,
    RmDir,
    Rename,
    Link,
    ReadDir,
    ReadDirPlus,
    FsStat,
    FsInfo,
    PathConf,
    Commit,
    MountNull,
    Mnt,
    Dump,
    Umnt,
    UmntAll,
    Export,
}

/// Procedures of NFSv3. The index of each is its number in the protocol.
const NFS_PROCEDURES: [Operation; 22] = [
    Operation::Null,
    Operation::GetAttr,
    Operation::SetAttr,
    Operation::Lookup,
    Operation::Access,
    Operation::ReadLink,
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::MkDir,
    Operation::SymLink,
    Operation::MkNod,
    Operation::Remove,
    Operation::RmDir,
    Operation::Rename,
    Operation::Link,
    Operation::ReadDir,
    Operation::ReadDirPlus,
    Operation::FsStat,
    Operation::FsInfo,
    Operation::PathConf,
    Operation::Commit,
];

/// Procedures of MOUNT v3. The index of each is its number in the protocol.
const MOUNT_PROCEDURES: [Operation; 6] = [
    Operation::MountNull,
    Operation::Mnt,
    Operation::Dump,
    Operation::Umnt,
    Operation::UmntAll,
    Operation::Export,
];

impl Operation {
    /// Number of operations.
    pub const COUNT: usize = NFS_PROCEDURES.len() + MOUNT_PROCEDURES.len();

    /// Returns all operations, so that metrics can start with a zero for each.
    pub fn all() -> impl Iterator<Item = Self> {
        NFS_PROCEDURES.into_iter().chain(MOUNT_PROCEDURES)
    }

    /// Returns the position in [`all`](Self::all).
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the name for metrics and logs: that of RFC 1813 in lower case, and `mount_null` for NULL of MOUNT.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::GetAttr => "getattr",
            Self::SetAttr => "setattr",
            Self::Lookup => "lookup",
            Self::Access => "access",
            Self::ReadLink => "readlink",
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::MkDir => "mkdir",
            Self::SymLink => "symlink",
            Self::MkNod => "mknod",
            Self::Remove => "remove",
            Self::RmDir => "rmdir",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::ReadDir => "readdir",
            Self::ReadDirPlus => "readdirplus",
            Self::FsStat => "fsstat",
            Self::FsInfo => "fsinfo",
            Self::PathConf => "pathconf",
            Self::Commit => "commit",
            Self::MountNull => "mount_null",
            Self::Mnt => "mnt",
            Self::Dump => "dump",
            Self::Umnt => "umnt",
            Self::UmntAll => "umntall",
            Self::Export => "export",
        }
    }

    /// Returns the procedure of NFSv3 with this number; `None` if there is none.
    pub(crate) fn of_nfs(procedure: u32) -> Option<Self> {
        NFS_PROCEDURES.get(usize::try_from(procedure).ok()?).copied()
    }

    /// Returns the procedure of MOUNT v3 with this number; `None` if there is none.
    pub(crate) fn of_mount(procedure: u32) -> Option<Self> {
        MOUNT_PROCEDURES.get(usize::try_from(procedure).ok()?).copied()
    }

    /// Returns true if the operation changes files, their attributes or directories.
    pub(crate) fn changes_files(self) -> bool {
        self == Self::Write || self.is_replayed()
    }

    /// Returns true if the second execution of a call may have another result than the first. When a client sends such
    /// a call again, it gets the first reply.
    pub(crate) fn is_replayed(self) -> bool {
        matches!(
            self,
            Self::SetAttr
                | Self::Create
                | Self::MkDir
                | Self::SymLink
                | Self::MkNod
                | Self::Remove
                | Self::RmDir
                | Self::Rename
                | Self::Link
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn procedures_have_the_numbers_of_the_rfc() {
        for (number, operation) in [(0, Operation::Null), (6, Operation::Read), (21, Operation::Commit)] {
            assert_eq!(Operation::of_nfs(number), Some(operation));
        }
        assert_eq!(Operation::of_nfs(22), None);
        assert_eq!(Operation::of_mount(1), Some(Operation::Mnt));
        assert_eq!(Operation::of_mount(5), Some(Operation::Export));
        assert_eq!(Operation::of_mount(6), None);
    }

    #[test]
    fn indexes_are_positions() {
        for (index, operation) in Operation::all().enumerate() {
            assert_eq!(operation.index(), index);
        }
        assert_eq!(Operation::all().count(), Operation::COUNT);
    }

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = Operation::all().map(Operation::name).collect();
        assert_eq!(names.len(), Operation::all().count());
    }
}
