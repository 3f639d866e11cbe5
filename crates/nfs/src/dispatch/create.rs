//! CREATE, MKDIR, SYMLINK, MKNOD.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode as FileMode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::attributes::{NewAttributes, truncate};
use super::encode::{put_post_op, put_post_op_handle};
use super::request::{Failure, Parent, Request, name};
use crate::table::FileId;
use crate::volume::{Name, Node, Place, Stat, stat_at, stat_open};
use crate::wire::{Decoder, Encode, FileKind, Status};

/// Longest target of a symlink.
const TARGET_MAX: usize = 4096;

const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Created file, for the reply.
struct Created {
    id: FileId,
    fileid: u64,
    stat: Stat,
}

/// Method of CREATE.
enum Method {
    Unchecked(NewAttributes),
    Guarded(NewAttributes),
    /// The verifier marks the file, so that a repeated call finds its own.
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

/// CREATE
pub(super) fn create(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = name(arguments)?;
    let method = Method::decode(arguments)?;
    with_parent(request, out, name, |request, parent, name| create_file(request, parent, name, &method))
}

/// MKDIR
pub(super) fn mkdir(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = name(arguments)?;
    let attributes = NewAttributes::decode(arguments)?;
    with_parent(request, out, name, |request, parent, name| {
        attributes.check_owner(request.volume.rules().identity, None)?;
        let mode = FileMode::from_raw_mode(attributes.mode_or(DIRECTORY_MODE));
        rustix::fs::mkdirat(&parent.open.fd, name, mode)?;
        finish(request, parent, name, &attributes)
    })
}

/// SYMLINK
pub(super) fn symlink(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = name(arguments)?;
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
        Ok(created(request, parent, name, stat))
    })
}

/// MKNOD: named pipes and sockets. Devices give access to the machine, so there are none.
pub(super) fn mknod(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let name = name(arguments)?;
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
        let mode = FileMode::from_raw_mode(attributes.mode_or(FILE_MODE));
        rustix::fs::mknodat(&parent.open.fd, name, kind, mode, 0)?;
        finish(request, parent, name, attributes)
    })
}

/// Opens the directory, creates an entry in it, and writes the result.
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

fn created(request: &Request<'_>, parent: &Parent, name: &CStr, stat: Stat) -> Created {
    let (id, fileid) = request.volume.id_of(parent.id, name, &stat);
    Created { id, fileid, stat }
}

/// Sets the remaining attributes of a new entry.
fn finish(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    attributes: &NewAttributes,
) -> Result<Created, Status> {
    let stat = stat_at(&*parent.open, name)?;
    let changes = attributes.changes_of_new(&stat)?;
    let mut created = created(request, parent, name, stat);
    if !changes.is_empty() {
        let place = Place::Entry { parent: parent.open.clone(), name: name.into() };
        let node = Node { id: created.id, fileid: created.fileid, stat, place };
        request.volume.set_attributes(&node, &changes)?;
        created.stat = stat_at(&*parent.open, name)?;
    }
    Ok(created)
}

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
            match create_new(parent, name, attributes.mode_or(FILE_MODE)) {
                Ok(file) => finish_file(request, parent, name, attributes, file),
                Err(Errno::EXIST) => use_existing(request, parent, name, attributes),
                Err(error) => Err(error.into()),
            }
        }
        Method::Guarded(attributes) => {
            attributes.check_owner(identity, None)?;
            let file = create_new(parent, name, attributes.mode_or(FILE_MODE))?;
            finish_file(request, parent, name, attributes, file)
        }
        Method::Exclusive(verifier) => match create_new(parent, name, FILE_MODE) {
            Ok(file) => {
                rustix::fs::futimens(&file, &marked(*verifier))?;
                keep(request, parent, name, file)
            }
            Err(Errno::EXIST) => find_marked(request, parent, name, *verifier),
            Err(error) => Err(error.into()),
        },
    }
}

fn create_new(parent: &Parent, name: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&parent.open.fd, name, flags, FileMode::from_raw_mode(mode))
}

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
        return finish(request, parent, name, attributes);
    }
    let created = created(request, parent, name, stat);
    request.volume.keep_open(created.id, file);
    Ok(created)
}

/// Returns a new file, whose descriptor is kept: what a client creates it writes next, perhaps with permissions that
/// do not let the owner write.
fn keep(request: &Request<'_>, parent: &Parent, name: &CStr, file: OwnedFd) -> Result<Created, Status> {
    let created = created(request, parent, name, stat_open(&file)?);
    request.volume.keep_open(created.id, file);
    Ok(created)
}

/// Returns a file that was there, cut to the length that the client sets.
fn use_existing(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    attributes: &NewAttributes,
) -> Result<Created, Status> {
    let mut created = created(request, parent, name, stat_at(&*parent.open, name)?);
    if !created.stat.is_regular() {
        return Err(Status::Exist);
    }
    if let Some(size) = attributes.size {
        truncate(&*request.volume.open_to_write(created.id)?, size)?;
        created.stat = stat_at(&*parent.open, name)?;
    }
    Ok(created)
}

/// Returns the times that mark a file of an exclusive CREATE. Only the bits are used that every file system keeps.
fn marked([one, other]: [u32; 2]) -> Timestamps {
    let time = |seconds: u32| Timespec { tv_sec: (seconds & 0x7fff_ffff).into(), tv_nsec: 0 };
    Timestamps { last_access: time(one), last_modification: time(other) }
}

fn find_marked(
    request: &Request<'_>,
    parent: &Parent,
    name: &CStr,
    verifier: [u32; 2],
) -> Result<Created, Status> {
    let stat = stat_at(&*parent.open, name)?;
    let expected = marked(verifier);
    let is_marked = stat.is_regular()
        && stat.0.stx_atime.tv_sec == expected.last_access.tv_sec
        && stat.0.stx_mtime.tv_sec == expected.last_modification.tv_sec
        && stat.0.stx_mtime.tv_nsec == 0;
    if is_marked { Ok(created(request, parent, name, stat)) } else { Err(Status::Exist) }
}
