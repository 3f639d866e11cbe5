//! Procedures GETATTR, SETATTR and ACCESS of NFSv3, and the attributes that a client sets.

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::encode::{put_attributes, put_file, put_wcc};
use super::request::{Failure, Request};
use crate::export::{Access, Identity};
use crate::volume::{Changes, FoundFile, Stat, stat_open};
use crate::wire::{AccessRights, Decoder, Encode, SetTime, Status, XdrError};

/// Set-group-id bit of a mode.
const SETGID: u32 = 0o2000;

/// Attributes that a client sets (`sattr3`). Those that are `None` stay as they are.
pub(super) struct NewAttributes {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    pub(super) size: Option<u64>,
    /// Time of the last access.
    accessed: SetTime,
    /// Time of the last modification.
    modified: SetTime,
}

impl NewAttributes {
    /// Decodes `sattr3`.
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

    /// Returns the permissions that the client sets, or `default` if it sets none.
    pub(super) fn mode_or(&self, default: u32) -> u32 {
        self.mode.unwrap_or(default) & 0o7777
    }

    /// Fails with PERM if the client sets a user or group other than those of the export. `present` is the status of an
    /// existing file: its present user and group are allowed too.
    pub(super) fn check_owner(&self, identity: Identity, present: Option<&Stat>) -> Result<(), Status> {
        let is_own =
            |id: Option<u32>, own, present: Option<u32>| id.is_none_or(|id| id == own || Some(id) == present);
        let is_allowed = is_own(self.uid, identity.uid, present.map(|stat| stat.0.stx_uid))
            && is_own(self.gid, identity.gid, present.map(|stat| stat.0.stx_gid));
        if is_allowed { Ok(()) } else { Err(Status::Perm) }
    }

    /// Returns all changes of a file except that of its size.
    fn changes(&self, stat: &Stat) -> Result<Changes, Status> {
        let if_different = |id: Option<u32>, present| id.filter(|id| *id != present);
        Ok(Changes {
            mode: self.mode,
            uid: if_different(self.uid, stat.0.stx_uid),
            gid: if_different(self.gid, stat.0.stx_gid),
            times: self.times()?,
        })
    }

    /// Returns the changes that are still to be made to a file that was just created with the mode of the client.
    /// `stat` is the status of that file.
    pub(super) fn changes_of_new(&self, stat: &Stat) -> Result<Changes, Status> {
        let mut changes = self.changes(stat)?;
        // A difference in the setgid bit alone is ignored. If the file has a group in which the user is not, the kernel
        // clears this bit, and would clear it again in a `chmod`.
        let mode =
            self.mode.filter(|mode| mode & 0o7777 & !SETGID != u32::from(stat.0.stx_mode) & 0o7777 & !SETGID);
        changes.mode = mode;
        Ok(changes)
    }

    /// Returns the times to set; `None` if both stay. Fails with INVAL for an invalid number of nanoseconds.
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
        // The seconds are unsigned in the protocol, but clients use two's complement for times before 1970.
        SetTime::To { seconds, nanoseconds } => {
            Timespec { tv_sec: i32::from_ne_bytes(seconds.to_ne_bytes()).into(), tv_nsec: nanoseconds.into() }
        }
    })
}

/// GETATTR: returns the attributes of a file.
pub(super) fn getattr(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let file = request.volume.find_file(request.id)?;
    out.put_u32(0);
    put_attributes(out, request.volume, file.fileid, &file.stat);
    Ok(())
}

/// SETATTR: sets attributes of a file.
pub(super) fn setattr(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let attributes = NewAttributes::decode(arguments)?;
    let guard = arguments.option(|it| Ok((it.u32()?, it.u32()?)))?;
    request.check_writable()?;
    let file = request.volume.find_file(request.id)?;
    let result = set(request, &file, &attributes, guard);
    let after = request.volume.find_file(request.id).ok();
    out.put_u32(result.err().map_or(0, |status| status as u32));
    put_wcc(out, request.volume, file.fileid, Some(&file.stat), after.as_ref().map(|file| &file.stat));
    Ok(())
}

/// Sets attributes of a file. `guard` is the `ctime` that the client expects; if the file has another, fails with
/// NOT_SYNC.
fn set(
    request: &Request<'_>,
    file: &FoundFile,
    attributes: &NewAttributes,
    guard: Option<(u32, u32)>,
) -> Result<(), Status> {
    let changed = &file.stat.0.stx_ctime;
    let [.., a, b, c, d] = changed.tv_sec.to_be_bytes();
    if guard.is_some_and(|guard| guard != (u32::from_be_bytes([a, b, c, d]), changed.tv_nsec)) {
        return Err(Status::NotSync);
    }
    attributes.check_owner(request.volume.rules().identity, Some(&file.stat))?;
    let changes = attributes.changes(&file.stat)?;
    if let Some(size) = attributes.size {
        if file.stat.is_directory() {
            return Err(Status::IsDir);
        }
        if size > file.stat.0.stx_size {
            request.check_space(0)?;
        }
        truncate(&*request.volume.open_to_write(request.id)?, size)?;
    }
    request.volume.set_attributes(file, &changes)
}

/// Sets the length of an open file. Fails with FBIG if no file can have this length.
pub(super) fn truncate(file: impl std::os::fd::AsFd, size: u64) -> Result<(), Status> {
    // The kernel would fail with INVAL.
    if i64::try_from(size).is_err() {
        return Err(Status::FBig);
    }
    Ok(rustix::fs::ftruncate(file, size)?)
}

/// ACCESS: returns those of the requested rights that the client has.
pub(super) fn access(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let requested = arguments.u32()?;
    let file = request.volume.find_file(request.id)?;
    let rules = request.volume.rules();
    let mut rights = rights(&file.stat, rules.identity);
    if rules.access == Access::ReadOnly {
        rights &= !(AccessRights::MODIFY | AccessRights::EXTEND | AccessRights::DELETE);
    }
    out.put_u32(0);
    put_file(out, request.volume, &file);
    out.put_u32(requested & rights);
    Ok(())
}

/// Returns the rights of a user by the permission bits alone. The kernel checks permissions again in each operation.
fn rights(stat: &Stat, identity: Identity) -> u32 {
    let mode = u32::from(stat.0.stx_mode);
    let bits = if identity.uid == 0 {
        // Root may read and write every file, and execute a file if any of its execute bits is set.
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

/// Returns the status of an open file after an operation; `None` if it cannot be read.
pub(super) fn stat_after(file: impl std::os::fd::AsFd) -> Option<Stat> {
    stat_open(file).ok()
}
