//! READDIR and READDIRPLUS.

use std::ffi::CStr;

use super::encode::{put_attributes, put_handle};
use super::request::{Failure, Parent, Request, skip_handle};
use crate::volume::{Stream, stat_at};
use crate::wire::{Decoder, Encode, REPLY_HEADER_LEN, Status, XdrError};

/// Longest reply.
const REPLY_MAX: usize = 1 << 20;

/// Length of a reply from which on another thread is woken to read the next request meanwhile.
const LONG: usize = 32 * 1024;

/// Length of all in a reply that is no entry: status, attributes of the directory, verifier, end.
const OVERHEAD: usize = 4 + 88 + 8 + 8;

/// Length of the attributes and the handle of an entry.
const PLUS_LEN: usize = 4 + 84 + 4 + 4 + crate::handle::HANDLE_LEN;

/// Limits of a reply, in bytes.
struct Limits {
    /// All of the reply.
    total: usize,
    /// Names, inode numbers and cookies.
    names: usize,
}

/// Attributes and handles with the entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Names,
    Plus,
}

/// READDIR
pub(super) fn readdir(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let (cookie, limits) = readdir_arguments(arguments)?;
    list(request, out, cookie, &limits, Detail::Names)
}

/// READDIRPLUS
pub(super) fn readdirplus(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let (cookie, limits) = readdirplus_arguments(arguments)?;
    list(request, out, cookie, &limits, Detail::Plus)
}

/// Decodes the cookie and the limits of a READDIR.
fn readdir_arguments(arguments: &mut Decoder<'_>) -> Result<(u64, Limits), XdrError> {
    let (cookie, _verifier, count) = (arguments.u64()?, arguments.u64()?, arguments.u32()?);
    let limit = (count as usize).min(REPLY_MAX);
    Ok((cookie, Limits { total: limit, names: limit }))
}

/// Decodes the cookie and the limits of a READDIRPLUS.
fn readdirplus_arguments(arguments: &mut Decoder<'_>) -> Result<(u64, Limits), XdrError> {
    let (cookie, _verifier) = (arguments.u64()?, arguments.u64()?);
    let (names, total) = (arguments.u32()? as usize, arguments.u32()? as usize);
    Ok((cookie, Limits { total: total.min(REPLY_MAX), names }))
}

/// Returns the length that the reply to a READDIR may have.
pub(super) fn readdir_reply_len(mut arguments: Decoder<'_>) -> Result<usize, XdrError> {
    skip_handle(&mut arguments)?;
    Ok(REPLY_HEADER_LEN + readdir_arguments(&mut arguments)?.1.total)
}

/// Returns the length that the reply to a READDIRPLUS may have.
pub(super) fn readdirplus_reply_len(mut arguments: Decoder<'_>) -> Result<usize, XdrError> {
    skip_handle(&mut arguments)?;
    Ok(REPLY_HEADER_LEN + readdirplus_arguments(&mut arguments)?.1.total)
}

/// Appends a list. There is room for the reply already.
fn list(
    request: &mut Request<'_>,
    out: &mut Vec<u8>,
    cookie: u64,
    limits: &Limits,
    detail: Detail,
) -> Result<(), Failure> {
    if limits.total >= LONG {
        (request.caller.before_waiting)();
    }
    let parent = request.parent()?;
    let start = out.len();
    let written = write_list(request, &parent, out, cookie, limits, detail);
    if let Err(status) = written {
        out.truncate(start);
        out.put_u32(status as u32);
        parent.put_before(out, request.volume);
    }
    Ok(())
}

fn write_list(
    request: &Request<'_>,
    parent: &Parent,
    out: &mut Vec<u8>,
    cookie: u64,
    limits: &Limits,
    detail: Detail,
) -> Result<(), Status> {
    let mut stream = request.volume.stream(parent.id, &parent.open, cookie)?;
    out.put_u32(0);
    parent.put_before(out, request.volume);
    // Cookies are valid as long as the directory is there, so the verifier says nothing.
    out.put_u64(0);
    let is_end = write_entries(request, parent, out, &mut stream, limits, detail)?;
    out.put_bool(false);
    out.put_bool(is_end);
    if !is_end {
        request.volume.keep_stream(parent.id, stream);
    }
    Ok(())
}

/// Appends entries until the directory ends or the reply is full. Returns true at the end.
fn write_entries(
    request: &Request<'_>,
    parent: &Parent,
    out: &mut Vec<u8>,
    stream: &mut Stream,
    limits: &Limits,
    detail: Detail,
) -> Result<bool, Status> {
    let (mut total, mut names) = (OVERHEAD, 0);
    let mut is_first = true;
    loop {
        let Some(entry) = stream.next()? else { return Ok(true) };
        let name = entry.name.to_bytes();
        let length = 4 + 8 + 4 + name.len().next_multiple_of(4) + 8;
        let full_length = length + if detail == Detail::Plus { PLUS_LEN } else { 0 };
        if total + full_length > limits.total || names + length > limits.names && !is_first {
            stream.put_back();
            return if is_first { Err(Status::TooSmall) } else { Ok(false) };
        }
        is_first = false;
        total += full_length;
        names += length;
        let number = match name {
            b"." => parent.fileid(),
            // Clients learn nothing of the directory outside.
            b".." if parent.id == crate::table::ROOT => parent.fileid(),
            _ => entry.number,
        };
        out.put_bool(true);
        match detail {
            Detail::Names => put_entry(out, number, name, entry.cookie),
            Detail::Plus => put_entry_plus(request, parent, out, (number, entry.name, entry.cookie)),
        }
    }
}

fn put_entry(out: &mut Vec<u8>, number: u64, name: &[u8], cookie: u64) {
    out.put_u64(number);
    out.put_opaque(name);
    out.put_u64(cookie);
}

/// Appends an entry with its attributes and handle, or without them if it was removed or cannot be reached.
fn put_entry_plus(
    request: &Request<'_>,
    parent: &Parent,
    out: &mut Vec<u8>,
    (number, name, cookie): (u64, &CStr, u64),
) {
    let volume = request.volume;
    let known = match name.to_bytes() {
        b"." => Some((parent.id, parent.fileid(), parent.before)),
        b".." => None,
        _ => stat_at(&*parent.open, name).ok().map(|stat| {
            let (id, fileid) = volume.id_of(parent.id, name, &stat);
            (id, fileid, stat)
        }),
    };
    let fileid = known.as_ref().map_or(number, |(_, fileid, _)| *fileid);
    put_entry(out, fileid, name.to_bytes(), cookie);
    out.put_bool(known.is_some());
    if let Some((_, fileid, stat)) = &known {
        put_attributes(out, volume, *fileid, stat);
    }
    out.put_bool(known.is_some());
    if let Some((id, ..)) = known {
        put_handle(out, request.key(), volume, id);
    }
}
