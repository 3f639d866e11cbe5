//! Procedures READ, WRITE and COMMIT of NFSv3.
//!
//! `before_waiting` lets another thread of the connection read the next request. It is called before operations that
//! may take long.

use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::{Errno, ReadWriteFlags};

use super::attributes::stat_after;
use super::encode::{put_post_op, put_wcc};
use super::info::IO_MAX;
use super::request::{Failure, Request, skip_handle};
use crate::hooks::Direction;
use crate::volume::{Descriptor, stat_open};
use crate::wire::{Decoder, Encode, Stability, Status, XdrError};

/// Minimum length in bytes of a READ or WRITE that may take long.
const LONG_IO_MIN: u32 = 64 * 1024;

/// Upper bound of the length of a READ reply without the content, in bytes.
const READ_OVERHEAD_MAX: usize = 256;

/// Returns the maximum length of the reply to a READ, in bytes.
pub(super) fn reply_len(mut arguments: Decoder<'_>) -> Result<usize, XdrError> {
    skip_handle(&mut arguments)?;
    let (_offset, count) = (arguments.u64()?, arguments.u32()?.min(IO_MAX));
    Ok(READ_OVERHEAD_MAX + count as usize)
}

/// READ: reads at most [`IO_MAX`] bytes at an offset. The caller has reserved the buffer for the reply.
pub(super) fn read(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let (offset, count) = (arguments.u64()?, arguments.u32()?.min(IO_MAX));
    if count >= LONG_IO_MIN {
        (request.caller.before_waiting)();
    }
    let file = request.volume.open_to_read(request.id)?;
    let stat = stat_open(&*file)?;
    if stat.is_removed() {
        return Err(Status::Stale.into());
    }
    let fileid = request.volume.fileid(request.id, &stat);
    out.put_u32(0);
    put_post_op(out, request.volume, fileid, Some(&stat));
    // `count`, `eof` and the length of the content are set when the content was read.
    let lengths_at = out.len();
    for _ in 0..3 {
        out.put_u32(0);
    }
    let start = out.len();
    // The kernel accepts offsets up to `i64::MAX`; no file has content beyond.
    let read = if i64::try_from(offset).is_ok() { read_at(&file, out, offset, count as usize)? } else { 0 };
    let is_end = read < count || offset.saturating_add(u64::from(read)) == stat.0.stx_size;
    out.resize(start + (read as usize).next_multiple_of(4), 0);
    for (index, value) in [read, is_end.into(), read].into_iter().enumerate() {
        out[lengths_at + 4 * index..][..4].copy_from_slice(&value.to_be_bytes());
    }
    request.caller.context.observer.bytes(Direction::Read, read.into());
    Ok(())
}

/// Appends up to `count` bytes of a file to a buffer, whose spare capacity is not zeroed before. Returns the number of
/// bytes, which is smaller than `count` only at the end of the file.
fn read_at(file: &Descriptor, out: &mut Vec<u8>, offset: u64, count: usize) -> Result<u32, Errno> {
    let start = out.len();
    // With room for the padding.
    out.reserve(count + 3);
    let mut done = 0;
    while done < count {
        let room = &mut out.spare_capacity_mut()[..count - done];
        match rustix::io::pread(&file.fd, room, offset + done as u64) {
            Ok((read, _)) => {
                let length = read.len();
                if length == 0 {
                    break;
                }
                done += length;
                // SAFETY: `pread` has written that many bytes behind the old length.
                unsafe { out.set_len(start + done) };
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(u32::try_from(done).expect("it is at most `IO_MAX`"))
}

/// WRITE: writes at an offset, and syncs as the client demands. A failure with IO changes the write verifier, so that
/// clients send unsynced data again.
pub(super) fn write(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let (offset, count, stability) = (arguments.u64()?, arguments.u32()?, Stability::decode(arguments)?);
    let data = arguments.opaque(IO_MAX as usize)?;
    let data = &data[..data.len().min(count as usize)];
    if count >= LONG_IO_MIN || stability != Stability::Unstable {
        (request.caller.before_waiting)();
    }
    request.check_writable()?;
    let file = request.volume.open_to_write(request.id)?;
    let before = stat_open(&*file)?;
    if before.is_removed() {
        return Err(Status::Stale.into());
    }
    let fileid = request.volume.fileid(request.id, &before);
    let written =
        request.check_space(data.len() as u64).and_then(|()| write_at(&file, data, offset, stability));
    if written == Err(Status::Io) {
        request.volume.change_verifier();
    }
    if stability != Stability::Unstable {
        // The client sends no COMMIT for data that was synced.
        request.volume.end_writing(request.id);
    }
    out.put_u32(written.err().map_or(0, |status| status as u32));
    put_wcc(out, request.volume, fileid, Some(&before), stat_after(&*file).as_ref());
    if let Ok(written) = written {
        out.put_u32(written);
        out.put_u32(stability as u32);
        out.put_u64(request.volume.verifier());
        request.caller.context.observer.bytes(Direction::Write, written.into());
    }
    Ok(())
}

/// Writes data at an offset. Returns the number of bytes that were written, which is smaller than the length of the
/// data after a failure in the middle.
fn write_at(file: &Descriptor, data: &[u8], offset: u64, stability: Stability) -> Result<u32, Status> {
    let end = offset.checked_add(data.len() as u64);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(Status::FBig);
    }
    let flags = match stability {
        Stability::Unstable => ReadWriteFlags::empty(),
        Stability::DataSync => ReadWriteFlags::DSYNC,
        Stability::FileSync => ReadWriteFlags::SYNC,
    };
    let mut done = 0;
    while done < data.len() {
        let rest = [IoSlice::new(&data[done..])];
        match rustix::io::pwritev2(&file.fd, &rest, offset + done as u64, flags) {
            Ok(0) => return Err(Status::Io),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(u32::try_from(done).expect("it is at most `IO_MAX`"))
}

/// COMMIT: syncs the whole file and ignores the range. A failure changes the write verifier.
pub(super) fn commit(
    request: &mut Request<'_>,
    arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let _range = (arguments.u64()?, arguments.u32()?);
    (request.caller.before_waiting)();
    let file = match request.volume.open_to_read(request.id) {
        // The permissions of the file allow only writing.
        Err(Status::Access) => request.volume.open_to_write(request.id)?,
        opened => opened?,
    };
    let before = stat_open(&*file)?;
    let fileid = request.volume.fileid(request.id, &before);
    let synced = sync(file.as_fd());
    if synced.is_err() {
        request.volume.change_verifier();
    }
    request.volume.end_writing(request.id);
    out.put_u32(synced.err().map_or(0, |error| Status::from(error) as u32));
    put_wcc(out, request.volume, fileid, Some(&before), stat_after(&*file).as_ref());
    if synced.is_ok() {
        out.put_u64(request.volume.verifier());
    }
    Ok(())
}

/// Calls `fsync`, again if a signal interrupts it.
fn sync(file: impl AsFd + Copy) -> Result<(), Errno> {
    loop {
        match rustix::fs::fsync(file) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
