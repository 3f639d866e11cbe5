//! Numbers of NFSv3 and MOUNT v3 (RFC 1813): programs, status codes, types and flags.

use super::xdr::{Decoder, XdrError};

pub(crate) const NFS_PROGRAM: u32 = 100_003;
pub(crate) const NFS_VERSION: u32 = 3;
pub(crate) const MOUNT_PROGRAM: u32 = 100_005;
pub(crate) const MOUNT_VERSION: u32 = 3;

/// Status of a failed NFS operation (`nfsstat3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 1813")]
pub(crate) enum Status {
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Access = 13,
    Exist = 17,
    XDev = 18,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    RoFs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    DQuot = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupp = 10004,
    TooSmall = 10005,
    ServerFault = 10006,
    BadType = 10007,
    Jukebox = 10008,
}

/// Status of a failed MNT (`mountstat3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 1813")]
pub(crate) enum MountStatus {
    NoEnt = 2,
    Io = 5,
    Access = 13,
    NotDir = 20,
    Inval = 22,
    NameTooLong = 63,
    ServerFault = 10006,
}

/// Type of a file (`ftype3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Regular = 1,
    Directory = 2,
    BlockDevice = 3,
    CharacterDevice = 4,
    Symlink = 5,
    Socket = 6,
    Fifo = 7,
}

/// Change of a time of a file (`set_atime`, `set_mtime`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetTime {
    Keep,
    /// Sets the time of the server.
    Now,
    /// Sets a time that the client sends.
    To {
        seconds: u32,
        nanoseconds: u32,
    },
}

/// Stability that a client demands for a WRITE (`stable_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stability {
    Unstable = 0,
    DataSync = 1,
    FileSync = 2,
}

/// Bits of rights in ACCESS.
pub(crate) struct AccessRights;

impl AccessRights {
    pub(crate) const READ: u32 = 0x01;
    pub(crate) const LOOKUP: u32 = 0x02;
    pub(crate) const MODIFY: u32 = 0x04;
    pub(crate) const EXTEND: u32 = 0x08;
    pub(crate) const DELETE: u32 = 0x10;
    pub(crate) const EXECUTE: u32 = 0x20;
}

/// Bits of properties in the reply to FSINFO.
pub(crate) mod fsinfo {
    pub(crate) const LINK: u32 = 0x01;
    pub(crate) const SYMLINK: u32 = 0x02;
    pub(crate) const HOMOGENEOUS: u32 = 0x08;
    pub(crate) const CAN_SET_TIME: u32 = 0x10;
}

impl SetTime {
    pub(crate) fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match input.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::Now),
            2 => Ok(Self::To { seconds: input.u32()?, nanoseconds: input.u32()? }),
            _ => Err(XdrError),
        }
    }
}

impl Stability {
    pub(crate) fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match input.u32()? {
            0 => Ok(Self::Unstable),
            1 => Ok(Self::DataSync),
            2 => Ok(Self::FileSync),
            _ => Err(XdrError),
        }
    }
}

impl FileKind {
    pub(crate) fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(match input.u32()? {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::BlockDevice,
            4 => Self::CharacterDevice,
            5 => Self::Symlink,
            6 => Self::Socket,
            7 => Self::Fifo,
            _ => return Err(XdrError),
        })
    }
}
