//! Procedures FSSTAT, FSINFO and PATHCONF of NFSv3, which describe the file system of an export.

use super::encode::put_file;
use super::request::{Failure, Request};
use crate::wire::{Decoder, Encode, fsinfo};

/// Maximum length of the content of a READ or WRITE, in bytes.
pub(super) const IO_MAX: u32 = 1 << 20;

/// Preferred length of the reply to READDIR, in bytes.
const LIST_PREFERRED: u32 = 64 * 1024;

/// Maximum number of hard links of a file that clients are told: the limit of ext4.
const LINKS_MAX: u32 = 65_000;

/// FSSTAT: space and number of files.
pub(super) fn fsstat(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let file = request.volume.find_file(request.id)?;
    let space = request.volume.space()?;
    out.put_u32(0);
    put_file(out, request.volume, &file);
    for blocks in [space.f_blocks, space.f_bfree, space.f_bavail] {
        out.put_u64(blocks.saturating_mul(space.f_frsize));
    }
    for files in [space.f_files, space.f_ffree, space.f_favail] {
        out.put_u64(files);
    }
    // `invarsec`: the values may change at any time.
    out.put_u32(0);
    Ok(())
}

/// FSINFO: properties of the server.
pub(super) fn fsinfo(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let file = request.volume.find_file(request.id)?;
    out.put_u32(0);
    put_file(out, request.volume, &file);
    // Maximum length, preferred length and preferred multiple: first of READ, then of WRITE.
    for value in [IO_MAX, IO_MAX, 4096, IO_MAX, IO_MAX, 4096, LIST_PREFERRED] {
        out.put_u32(value);
    }
    // Maximum size of a file.
    out.put_u64(i64::MAX.unsigned_abs());
    // The server can set times with a resolution of one nanosecond.
    out.put_u32(0);
    out.put_u32(1);
    out.put_u32(fsinfo::LINK | fsinfo::SYMLINK | fsinfo::HOMOGENEOUS | fsinfo::CAN_SET_TIME);
    Ok(())
}

/// PATHCONF: limits and properties of names and links.
pub(super) fn pathconf(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let file = request.volume.find_file(request.id)?;
    let space = request.volume.space()?;
    out.put_u32(0);
    put_file(out, request.volume, &file);
    out.put_u32(LINKS_MAX);
    out.put_u32(u32::try_from(space.f_namemax).unwrap_or(255));
    // `no_trunc`, `chown_restricted`, `case_insensitive`, `case_preserving`.
    for value in [true, true, false, true] {
        out.put_bool(value);
    }
    Ok(())
}
