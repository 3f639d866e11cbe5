//! Procedures CREATE, MKDIR, SYMLINK and MKNOD of NFSv3.
//!
//! A new file gets an id in the table of its export: the id is part of the file handle.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode as FileMode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::attributes::{NewAttributes, truncate};
use super::encode::{put_post_op, put_post_op_handle};
use super::request::{Failure, Parent, Request, decode_name};
use crate::table::FileId;
use crate::volume::{FoundFile, Locator, Name, Stat, stat_at, stat_open};
use crate::wire::{Decoder, Encode, FileKind, Status};

/// Maximum length of the target of a symlink in bytes, with the final NUL of the kernel.
const TARGET_MAX: usize = 4096;

/// Mode of a new file if the client sets none.
const DEFAULT_FILE_MODE: u32 = 0o644;
/// Mode of a new directory if the client sets none.
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

/// Created file, for the reply.
struct Created {
    id: FileId,
    /// Inode number that clients see.
    fileid: u64,
    stat: Stat,
}

/// Mode of CREATE (`createmode3`).
enum Method {
    /// Uses an existing file.
    Unchecked(NewAttributes),
    /// Fails if the file exists.
    Guarded(NewAttributes),
    /// Fails if the file exists, unless it was created with the same verifier: then the client has repeated its call.
    /// The verifier is stored in the times of the file.
    Exclusive([u32; 2]),
}

impl Method {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, Failure> {
        match input.u32()? {
            0 => Ok(Self::Unchecked(NewAttributes::decode(input)?)),
            1 => Ok(Self::Guarded(NewAttributes::decode(input)?)),
            2 => Ok(Self::Exclusive([input.u32()?, input.u32()?])),
            _ => Err(Failure::Garbage),
        }
    }
}

/// CREATE: creates a regular file.
pub(super) fn create(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = decode_name(arguments)?;
    let method = Method::decode(arguments)?;
    with_parent(request, out, name, |request, parent, name| create_file(request, parent, name, &method))
}

/// MKDIR: creates a directory.
pub(super) fn mkdir(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = decode_name(arguments)?;
    let attributes = NewAttributes::decode(arguments)?;
    with_parent(request, out, name, |request, parent, name| {
        attributes.check_owner(request.volume.rules().identity, None)?;
        let mode = FileMode::from_raw_mode(attributes.mode_or(DEFAULT_DIRECTORY_MODE));
        rustix::fs::mkdirat(&parent.open.fd, name, mode)?;
        finish_entry(request, parent, name, &attributes)
    })
}

/// SYMLINK: creates a symlink. Fails if the client sets another owner; ignores its other attributes.
pub(super) fn symlink(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = decode_name(arguments)?;
    let attributes = NewAttributes::decode(arguments)?;
    let target = arguments.opaque(2 * TARGET_MAX)?;
    with_parent(request, out, name, |request, parent, name| {
        attributes.check_owner(request.volume.rules().identity, None)?;
        if target.len() >= TARGET_MAX {
            return Err(Status::NameTooLong);
        }
        let target = CString::new(target).map_err(|_| Status::Inval)?;
        rustix::fs::symlinkat(&*target, &parent.open.fd, name)?;
        let stat = stat_at(&*parent.open, name)?;
        Ok(assign_id(request, parent, name, stat))
    })
}

/// MKNOD: creates a named pipe or a socket. Devices are refused with PERM, because they give access to the machine.
pub(super) fn mknod(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = decode_name(arguments)?;
    let kind = FileKind::decode(arguments)?;
    let attributes = match kind {
        FileKind::CharacterDevice | FileKind::BlockDevice | FileKind::Socket | FileKind::Fifo => {
            Some(NewAttributes::decode(arguments)?)
        }
        _ => None,
    };
    with_parent(request, out, name, |request, parent, name| {
        let attributes = attributes.as_ref().ok_or(Status::BadType)?;
        attributes.check_owner(request.volume.rules().identity, None)?;
        let kind = match kind {
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
            _ => return Err(Status::Perm),
        };
        let mode = FileMode::from_raw_mode(attributes.mode_or(DEFAULT_FILE_MODE));
        rustix::fs::mknodat(&parent.open.fd, name, kind, mode, 0)?;
        finish_entry(request, parent, name, attributes)
    })
}

/// Opens the directory of the request, calls `create` to create an entry in it, and writes the result.
fn with_parent(
    request: &mut Request<'_>,
    out: &mut Vec<u8>,
    name: Result<Name, Status>,
    create: impl FnOnce(&Request<'_>, &Parent, &CStr) -> Result<Created, Status>,
) -> Result<(), Failure> {
    request.check_writable()?;
    let parent = request.parent()?;
    let name = name.and_then(|name| name.entry(Status::Exist));
    let allowed = name.and_then(|name| request.check_space(0).map(|()| name));
    match allowed.and_then(|name| create(request, &parent, &name)) {
        Ok(created) => {
            out.put_u32(0);
            put_post_op_handle(out, request.key(), request.volume, created.id);
            put_post_op(out, request.volume, created.fileid, Some(&created.stat));
        }
        Err(status) => out.put_u32(status as u32),
    }
    parent.put_wcc(out, request.volume);
    Ok(())
}

/// Gives a file that was seen at an entry an id in the table, if it has none.
fn assign_id(request: &Request<'_>, parent: &Parent, name: &CStr, stat: Stat) -> Created {
    let (id, fileid) = request.volume.id_of(parent.id, name, &stat);
    Created { id, fileid, stat }
}

/// Sets the attributes of a new entry that its creation could not set, and gives it an id.
fn finish_entry(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    attributes: &NewAttributes,
) -> Result<Created, Status> {
    let stat = stat_at(&*parent.open, name)?;
    let changes = attributes.changes_of_new(&stat)?;
    let mut created = assign_id(request, parent, name, stat);
    if !changes.is_empty() {
        let locator = Locator::Entry { parent: parent.open.clone(), name: name.into() };
        let file = FoundFile { id: created.id, fileid: created.fileid, stat, locator };
        request.volume.set_attributes(&file, &changes)?;
        created.stat = stat_at(&*parent.open, name)?;
    }
    Ok(created)
}

/// Creates a regular file, or finds the existing one if the method allows that.
fn create_file(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    method: &Method,
) -> Result<Created, Status> {
    let identity = request.volume.rules().identity;
    match method {
        Method::Unchecked(attributes) => {
            attributes.check_owner(identity, None)?;
            match create_new(parent, name, attributes.mode_or(DEFAULT_FILE_MODE)) {
                Ok(file) => finish_file(request, parent, name, attributes, file),
                Err(Errno::EXIST) => use_existing(request, parent, name, attributes),
                Err(error) => Err(error.into()),
            }
        }
        Method::Guarded(attributes) => {
            attributes.check_owner(identity, None)?;
            let file = create_new(parent, name, attributes.mode_or(DEFAULT_FILE_MODE))?;
            finish_file(request, parent, name, attributes, file)
        }
        Method::Exclusive(verifier) => match create_new(parent, name, DEFAULT_FILE_MODE) {
            Ok(file) => {
                rustix::fs::futimens(&file, &verifier_times(*verifier))?;
                keep_descriptor(request, parent, name, file)
            }
            Err(Errno::EXIST) => find_exclusive(request, parent, name, *verifier),
            Err(error) => Err(error.into()),
        },
    }
}

/// Creates a regular file and opens it for reading and writing. Fails with EXIST if there is an entry with this name.
fn create_new(parent: &Parent, name: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&parent.open.fd, name, flags, FileMode::from_raw_mode(mode))
}

/// Sets the length and the remaining attributes of a new regular file, and gives it an id. Keeps its descriptor open if
/// there are no remaining attributes.
fn finish_file(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    attributes: &NewAttributes,
    file: OwnedFd,
) -> Result<Created, Status> {
    if let Some(size) = attributes.size.filter(|size| *size > 0) {
        truncate(&file, size)?;
    }
    let stat = stat_open(&file)?;
    let changes = attributes.changes_of_new(&stat)?;
    if !changes.is_empty() {
        drop(file);
        return finish_entry(request, parent, name, attributes);
    }
    let created = assign_id(request, parent, name, stat);
    request.volume.keep_open(created.id, file);
    Ok(created)
}

/// Gives a new regular file an id, and keeps its descriptor. The client probably writes to the file next, perhaps with
/// permissions that do not let the owner open it for writing.
fn keep_descriptor(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    file: OwnedFd,
) -> Result<Created, Status> {
    let created = assign_id(request, parent, name, stat_open(&file)?);
    request.volume.keep_open(created.id, file);
    Ok(created)
}

/// Uses an existing regular file, and sets its length if the client wants that. Fails with EXIST for other files.
fn use_existing(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    attributes: &NewAttributes,
) -> Result<Created, Status> {
    let mut created = assign_id(request, parent, name, stat_at(&*parent.open, name)?);
    if !created.stat.is_regular() {
        return Err(Status::Exist);
    }
    if let Some(size) = attributes.size {
        truncate(&*request.volume.open_to_write(created.id)?, size)?;
        created.stat = stat_at(&*parent.open, name)?;
    }
    Ok(created)
}

/// Returns the times that store the verifier of an exclusive CREATE. They use only the 31 bits of the seconds that
/// every file system keeps.
fn verifier_times([first, second]: [u32; 2]) -> Timestamps {
    let time = |seconds: u32| Timespec { tv_sec: (seconds & 0x7fff_ffff).into(), tv_nsec: 0 };
    Timestamps { last_access: time(first), last_modification: time(second) }
}

/// Finds the file that an earlier exclusive CREATE with the same verifier has created. Fails with EXIST if the existing
/// file is another.
fn find_exclusive(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    verifier: [u32; 2],
) -> Result<Created, Status> {
    let stat = stat_at(&*parent.open, name)?;
    let expected = verifier_times(verifier);
    let has_verifier = stat.is_regular()
        && stat.0.stx_atime.tv_sec == expected.last_access.tv_sec
        && stat.0.stx_mtime.tv_sec == expected.last_modification.tv_sec
        && stat.0.stx_mtime.tv_nsec == 0;
    if has_verifier { Ok(assign_id(request, parent, name, stat)) } else { Err(Status::Exist) }
}
