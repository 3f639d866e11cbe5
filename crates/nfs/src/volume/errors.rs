//! Errors of the kernel as NFS numbers them.

use rustix::io::Errno;

use crate::wire::Status;

impl From<Errno> for Status {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PERM => Self::Perm,
            Errno::NOENT => Self::NoEnt,
            Errno::ACCESS | Errno::TXTBSY | Errno::BUSY => Self::Access,
            Errno::EXIST => Self::Exist,
            Errno::XDEV => Self::XDev,
            Errno::NOTDIR => Self::NotDir,
            Errno::ISDIR => Self::IsDir,
            Errno::INVAL => Self::Inval,
            Errno::FBIG | Errno::OVERFLOW => Self::FBig,
            Errno::NOSPC => Self::NoSpc,
            Errno::ROFS => Self::RoFs,
            Errno::MLINK => Self::MLink,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::DQuot,
            // A symlink in the place of what was to be opened: somebody has replaced it in the meantime.
            Errno::STALE | Errno::LOOP => Self::Stale,
            Errno::OPNOTSUPP => Self::NotSupp,
            // Resources of this process, or a race that the kernel reports: the client may try again.
            Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN => Self::Jukebox,
            _ => Self::Io,
        }
    }
}
