//! GETATTR, SETATTR, ACCESS.

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::encode::{put_attributes, put_node, put_wcc};
use super::request::{Failure, Request};
use crate::export::{Access, Identity};
use crate::volume::{Changes, Node, Stat, stat_open};
use crate::wire::{AccessRights, Decoder, Encode, SetTime, Status, XdrError};

const SETGID: u32 = 0o2000;

/// Attributes that a client sets.
pub(super) struct NewAttributes {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    pub(super) size: Option<u64>,
    accessed: SetTime,
    modified: SetTime,
}

impl NewAttributes {
    pub(super) fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            mode: input.option(Decoder::u32)?,
            uid: input.option(Decoder::u32)?,
            gid: input.option(Decoder::u32)?,
            size: input.option(Decoder::u64)?,
            accessed: SetTime::decode(input)?,
            modified: SetTime::decode(input)?,
        })
    }

    /// Permissions, or the given ones if the client sets none.
    pub(super) fn mode_or(&self, default: u32) -> u32 {
        self.mode.unwrap_or(default) & 0o7777
    }

    /// Fails if an owner is set that is not the one of all files of the export. `present` is the status of an
    /// existing file, whose owner may be set again.
    pub(super) fn check_owner(&self, identity: Identity, present: Option<&Stat>) -> Result<(), Status> {
        let is_own =
            |id: Option<u32>, own, present: Option<u32>| id.is_none_or(|id| id == own || Some(id) == present);
        let is_allowed = is_own(self.uid, identity.uid, present.map(|stat| stat.0.stx_uid))
            && is_own(self.gid, identity.gid, present.map(|stat| stat.0.stx_gid));
        if is_allowed { Ok(()) } else { Err(Status::Perm) }
    }

    /// Returns all changes but the size.
    fn changes(&self, stat: &Stat) -> Result<Changes, Status> {
        let differs = |id: Option<u32>, present| id.filter(|id| *id != present);
        Ok(Changes {
            mode: self.mode,
            uid: differs(self.uid, stat.0.stx_uid),
            gid: differs(self.gid, stat.0.stx_gid),
            times: self.times()?,
        })
    }

    /// Returns the changes of a file that was just created with the mode.
    pub(super) fn changes_of_new(&self, stat: &Stat) -> Result<Changes, Status> {
        let mut changes = self.changes(stat)?;
        // The kernel takes the bit from a new file in a directory of another group, as it does for a `chmod`.
        let mode =
            self.mode.filter(|mode| mode & 0o7777 & !SETGID != u32::from(stat.0.stx_mode) & 0o7777 & !SETGID);
        changes.mode = mode;
        Ok(changes)
    }

    fn times(&self) -> Result<Option<Timestamps>, Status> {
        if (self.accessed, self.modified) == (SetTime::Keep, SetTime::Keep) {
            return Ok(None);
        }
        Ok(Some(Timestamps {
            last_access: timespec(self.accessed)?,
            last_modification: timespec(self.modified)?,
        }))
    }
}

fn timespec(time: SetTime) -> Result<Timespec, Status> {
    Ok(match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To { nanoseconds, .. } if nanoseconds >= 1_000_000_000 => return Err(Status::Inval),
        // As in replies, the seconds are taken as two's complement.
        SetTime::To { seconds, nanoseconds } => {
            Timespec { tv_sec: i32::from_ne_bytes(seconds.to_ne_bytes()).into(), tv_nsec: nanoseconds.into() }
        }
    })
}

/// GETATTR
pub(super) fn getattr(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let node = request.volume.node(request.id)?;
    out.put_u32(0);
    put_attributes(out, request.volume, node.fileid, &node.stat);
    Ok(())
}

/// SETATTR
pub(super) fn setattr(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let attributes = NewAttributes::decode(arguments)?;
    let guard = arguments.option(|it| Ok((it.u32()?, it.u32()?)))?;
    request.check_writable()?;
    let node = request.volume.node(request.id)?;
    let result = set(request, &node, &attributes, guard);
    let after = request.volume.node(request.id).ok();
    out.put_u32(result.err().map_or(0, |status| status as u32));
    put_wcc(out, request.volume, node.fileid, Some(&node.stat), after.as_ref().map(|node| &node.stat));
    Ok(())
}

fn set(
    request: &Request<'_>,
    node: &Node,
    attributes: &NewAttributes,
    guard: Option<(u32, u32)>,
) -> Result<(), Status> {
    let changed = &node.stat.0.stx_ctime;
    let [.., a, b, c, d] = changed.tv_sec.to_be_bytes();
    if guard.is_some_and(|guard| guard != (u32::from_be_bytes([a, b, c, d]), changed.tv_nsec)) {
        return Err(Status::NotSync);
    }
    attributes.check_owner(request.volume.rules().identity, Some(&node.stat))?;
    let changes = attributes.changes(&node.stat)?;
    if let Some(size) = attributes.size {
        if node.stat.is_directory() {
            return Err(Status::IsDir);
        }
        if size > node.stat.0.stx_size {
            request.check_space(0)?;
        }
        truncate(&*request.volume.open_to_write(request.id)?, size)?;
    }
    request.volume.set_attributes(node, &changes)
}

/// Sets the length of a file.
pub(super) fn truncate(file: impl std::os::fd::AsFd, size: u64) -> Result<(), Status> {
    // The kernel says INVAL to lengths that no file can have.
    if i64::try_from(size).is_err() {
        return Err(Status::FBig);
    }
    Ok(rustix::fs::ftruncate(file, size)?)
}

/// ACCESS
pub(super) fn access(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let asked = arguments.u32()?;
    let node = request.volume.node(request.id)?;
    let rules = request.volume.rules();
    let mut rights = rights(&node.stat, rules.identity);
    if rules.access == Access::ReadOnly {
        rights &= !(AccessRights::MODIFY | AccessRights::EXTEND | AccessRights::DELETE);
    }
    out.put_u32(0);
    put_node(out, request.volume, &node);
    out.put_u32(asked & rights);
    Ok(())
}

/// Returns the rights of a user by the permission bits. The kernel decides again when the user makes use of them.
fn rights(stat: &Stat, identity: Identity) -> u32 {
    let mode = u32::from(stat.0.stx_mode);
    let bits = if identity.uid == 0 {
        // Root may all, but execute only what somebody may.
        0o6 | u32::from(mode & 0o111 != 0 || stat.is_directory())
    } else if stat.0.stx_uid == identity.uid {
        mode >> 6
    } else if stat.0.stx_gid == identity.gid {
        mode >> 3
    } else {
        mode
    };
    let mut rights = 0;
    if bits & 0o4 != 0 {
        rights |= AccessRights::READ;
    }
    if bits & 0o2 != 0 {
        rights |= AccessRights::MODIFY | AccessRights::EXTEND;
        if stat.is_directory() {
            rights |= AccessRights::DELETE;
        }
    }
    if bits & 0o1 != 0 {
        rights |= if stat.is_directory() { AccessRights::LOOKUP } else { AccessRights::EXECUTE };
    }
    rights
}

/// Returns the present status of an open file.
pub(super) fn after(file: impl std::os::fd::AsFd) -> Option<Stat> {
    stat_open(file).ok()
}
