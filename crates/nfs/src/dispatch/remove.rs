//! Procedures REMOVE, RMDIR, RENAME and LINK of NFSv3.
//!
//! After a change of the file system, each procedure updates the table that maps the ids in file handles to names.

use std::ffi::CString;

use rustix::fs::AtFlags;

use super::encode::put_post_op;
use super::request::{Failure, Parent, Request, decode_name};
use crate::volume::{Locator, stat_at};
use crate::wire::{Decoder, Encode, Status};

/// REMOVE: removes a file that is not a directory.
pub(super) fn remove(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    unlink(request, arguments, out, AtFlags::empty())
}

/// RMDIR: removes an empty directory.
pub(super) fn rmdir(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    unlink(request, arguments, out, AtFlags::REMOVEDIR)
}

/// Removes a directory entry. `flags` selects RMDIR by `REMOVEDIR`; empty flags are REMOVE.
fn unlink(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
    flags: AtFlags,
) -> Result<(), Failure> {
    let name = decode_name(arguments)?;
    request.check_writable()?;
    let parent = request.parent()?;
    let result = name.and_then(|name| {
        // For RMDIR, RFC 1813 demands INVAL for `.` and EXIST for `..`.
        let error_for_dots = match name {
            crate::volume::Name::Parent if flags == AtFlags::REMOVEDIR => Status::Exist,
            _ => Status::Inval,
        };
        let name = name.entry(error_for_dots)?;
        let before = stat_at(&*parent.open, &name)?;
        if flags.is_empty() && before.is_directory() {
            return Err(Status::IsDir);
        }
        rustix::fs::unlinkat(&parent.open.fd, &name, flags)?;
        request.volume.unlinked(&before, parent.entry(&name));
        Ok(())
    });
    out.put_u32(result.err().map_or(0, |status| status as u32));
    parent.put_wcc(out, request.volume);
    Ok(())
}

/// RENAME: moves an entry to a name in the same or another directory of the export.
pub(super) fn rename(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let from_name = decode_name(arguments)?;
    let to_id = request.other_handle(arguments)?;
    let to_name = decode_name(arguments)?;
    request.check_writable()?;
    let from = request.parent()?;
    let to = request.parent_of(to_id?)?;
    let names = from_name
        .and_then(|name| name.entry(Status::Inval))
        .and_then(|from| Ok((from, to_name?.entry(Status::Inval)?)));
    let result =
        names.and_then(|(from_name, to_name)| rename_entry(request, (&from, from_name), (&to, to_name)));
    out.put_u32(result.err().map_or(0, |status| status as u32));
    from.put_wcc(out, request.volume);
    to.put_wcc(out, request.volume);
    Ok(())
}

/// Renames an entry, and records it in the table. `from` and `to` are directories.
fn rename_entry(
    request: &Request<'_>,
    (from, from_name): (&Parent, CString),
    (to, to_name): (&Parent, CString),
) -> Result<(), Status> {
    let moved = stat_at(&*from.open, &from_name)?;
    let replaced = match stat_at(&*to.open, &to_name) {
        Ok(stat) => Some(stat),
        Err(rustix::io::Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    rustix::fs::renameat(&from.open.fd, &from_name, &to.open.fd, &to_name)?;
    request.volume.moved(&moved, from.entry(&from_name), to.entry(&to_name), replaced.as_ref());
    Ok(())
}

/// LINK: creates a hard link to the file of the first handle in the directory of the second.
pub(super) fn link(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let parent_id = request.other_handle(arguments)?;
    let name = decode_name(arguments)?;
    request.check_writable()?;
    let parent = request.parent_of(parent_id?)?;
    let result = name.and_then(|name| {
        let name = name.entry(Status::Exist)?;
        request.check_space(0)?;
        let source = request.volume.entry_of(request.id)?;
        let Locator::Entry { parent: from, name: from_name } = &source.locator else {
            return Err(Status::IsDir);
        };
        if source.stat.is_directory() {
            return Err(Status::IsDir);
        }
        rustix::fs::linkat(&from.fd, &**from_name, &parent.open.fd, &name, AtFlags::empty())?;
        let stat = stat_at(&*parent.open, &name)?;
        request.volume.id_of(parent.id, &name, &stat);
        Ok(())
    });
    let after = request.volume.find_file(request.id).ok();
    out.put_u32(result.err().map_or(0, |status| status as u32));
    match &after {
        Some(file) => put_post_op(out, request.volume, file.fileid, Some(&file.stat)),
        None => out.put_bool(false),
    }
    parent.put_wcc(out, request.volume);
    Ok(())
}
