//! Conversion of errors of the kernel to status codes of NFSv3.

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
            // LOOP: a symlink has replaced the file or directory in the meantime.
            Errno::STALE | Errno::LOOP => Self::Stale,
            Errno::OPNOTSUPP => Self::NotSupp,
            // Lack of memory or descriptors, or a lease or race that the kernel reports: the client tries again.
            Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN => Self::Jukebox,
            _ => Self::Io,
        }
    }
}
