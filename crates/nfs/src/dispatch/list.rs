//! Procedures READDIR and READDIRPLUS of NFSv3. A client lists a large directory in several calls: it passes the cookie
//! of the last entry of the former reply.

use std::ffi::CStr;

use super::encode::{put_attributes, put_handle};
use super::request::{Failure, Parent, Request, skip_handle};
use crate::volume::{Stream, stat_at};
use crate::wire::{Decoder, Encode, REPLY_HEADER_LEN, Status, XdrError};

/// Maximum length of a reply, in bytes.
const REPLY_MAX: usize = 1 << 20;

/// Minimum length in bytes of a reply that may take long. Another thread then reads the next request of the connection.
const LONG_LIST_MIN: usize = 32 * 1024;

/// Length in bytes of a reply without entries: status, attributes of the directory, verifier, and end of the list.
const FIXED_LEN: usize = 4 + 88 + 8 + 8;

/// Length in bytes of the attributes and the handle of an entry in READDIRPLUS.
const PLUS_LEN: usize = 4 + 84 + 4 + 4 + crate::handle::HANDLE_LEN;

/// Limits of the length of a reply, in bytes.
struct ReplyLimits {
    /// Maximum length of the result (`count` of READDIR, `maxcount` of READDIRPLUS).
    total: usize,
    /// Maximum length of names, inode numbers and cookies (`dircount` of READDIRPLUS).
    names: usize,
}

/// Content of the entries in a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Names, inode numbers and cookies (READDIR).
    Names,
    /// Attributes and handles in addition (READDIRPLUS).
    Plus,
}

/// READDIR: lists names.
pub(super) fn readdir(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let (cookie, limits) = readdir_arguments(arguments)?;
    list(request, out, cookie, &limits, Detail::Names)
}

/// READDIRPLUS: lists names with attributes and handles.
pub(super) fn readdirplus(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let (cookie, limits) = readdirplus_arguments(arguments)?;
    list(request, out, cookie, &limits, Detail::Plus)
}

/// Decodes the cookie and the limits of a READDIR.
fn readdir_arguments(arguments: &mut Decoder<'_>) -> Result<(u64, ReplyLimits), XdrError> {
    let (cookie, _verifier, count) = (arguments.u64()?, arguments.u64()?, arguments.u32()?);
    let limit = (count as usize).min(REPLY_MAX);
    Ok((cookie, ReplyLimits { total: limit, names: limit }))
}

/// Decodes the cookie and the limits of a READDIRPLUS.
fn readdirplus_arguments(arguments: &mut Decoder<'_>) -> Result<(u64, ReplyLimits), XdrError> {
    let (cookie, _verifier) = (arguments.u64()?, arguments.u64()?);
    let (names, total) = (arguments.u32()? as usize, arguments.u32()? as usize);
    Ok((cookie, ReplyLimits { total: total.min(REPLY_MAX), names }))
}

/// Returns the maximum length of the reply to a READDIR, in bytes.
pub(super) fn readdir_reply_len(mut arguments: Decoder<'_>) -> Result<usize, XdrError> {
    skip_handle(&mut arguments)?;
    Ok(REPLY_HEADER_LEN + readdir_arguments(&mut arguments)?.1.total)
}

/// Returns the maximum length of the reply to a READDIRPLUS, in bytes.
pub(super) fn readdirplus_reply_len(mut arguments: Decoder<'_>) -> Result<usize, XdrError> {
    skip_handle(&mut arguments)?;
    Ok(REPLY_HEADER_LEN + readdirplus_arguments(&mut arguments)?.1.total)
}

/// Appends the result of READDIR or READDIRPLUS. The caller has reserved the buffer for the reply.
fn list(
    request: &mut Request<'_>,
    out: &mut Vec<u8>,
    cookie: u64,
    limits: &ReplyLimits,
    detail: Detail,
) -> Result<(), Failure> {
    if limits.total >= LONG_LIST_MIN {
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

/// Appends a successful result: entries from the position `cookie` on.
fn write_list(
    request: &Request<'_>,
    parent: &Parent,
    out: &mut Vec<u8>,
    cookie: u64,
    limits: &ReplyLimits,
    detail: Detail,
) -> Result<(), Status> {
    let mut stream = request.volume.stream(parent.id, &parent.open, cookie)?;
    out.put_u32(0);
    parent.put_before(out, request.volume);
    // `cookieverf`: cookies are valid as long as the directory exists, so no verifier is needed.
    out.put_u64(0);
    let is_end = write_entries(request, parent, out, &mut stream, limits, detail)?;
    out.put_bool(false);
    out.put_bool(is_end);
    if !is_end {
        request.volume.keep_stream(parent.id, stream);
    }
    Ok(())
}

/// Appends entries until the directory ends or the reply is full. Returns true at the end of the directory. Fails with
/// TOOSMALL if there is no room for the first entry.
fn write_entries(
    request: &Request<'_>,
    parent: &Parent,
    out: &mut Vec<u8>,
    stream: &mut Stream,
    limits: &ReplyLimits,
    detail: Detail,
) -> Result<bool, Status> {
    let (mut total, mut names) = (FIXED_LEN, 0);
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
            // Clients learn nothing of the directory above the root.
            b".." if parent.id == crate::table::ROOT => parent.fileid(),
            // The attributes of an entry have the number, too.
            _ if detail == Detail::Plus && name != b".." => entry.number,
            _ => request.volume.listed_fileid(&parent.open, entry.name, entry.number),
        };
        out.put_bool(true);
        match detail {
            Detail::Names => put_entry(out, number, name, entry.cookie),
            Detail::Plus => put_entry_plus(request, parent, out, (number, entry.name, entry.cookie)),
        }
    }
}

/// Appends an entry. `number` is its inode number.
fn put_entry(out: &mut Vec<u8>, number: u64, name: &[u8], cookie: u64) {
    out.put_u64(number);
    out.put_opaque(name);
    out.put_u64(cookie);
}

/// Appends an entry with its attributes and handle. They are omitted for `..`, and for an entry that was removed or
/// cannot be accessed. The tuple has the inode number, the name and the cookie of the entry.
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
