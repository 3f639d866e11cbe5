//! FSSTAT, FSINFO, PATHCONF.

use super::encode::put_node;
use super::request::{Failure, Request};
use crate::wire::{Decoder, Encode, fsinfo};

/// Longest content of a READ or WRITE, in bytes.
pub(super) const IO_MAX: u32 = 1 << 20;

/// Preferred length of a listing, in bytes.
const LIST_PREFERRED: u32 = 64 * 1024;

/// Maximum number of links, that of ext4.
const LINKS_MAX: u32 = 65_000;

/// FSSTAT
pub(super) fn fsstat(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let node = request.volume.node(request.id)?;
    let space = request.volume.space()?;
    out.put_u32(0);
    put_node(out, request.volume, &node);
    for blocks in [space.f_blocks, space.f_bfree, space.f_bavail] {
        out.put_u64(blocks.saturating_mul(space.f_frsize));
    }
    for files in [space.f_files, space.f_ffree, space.f_favail] {
        out.put_u64(files);
    }
    // Others may use the space at any time.
    out.put_u32(0);
    Ok(())
}

/// FSINFO
pub(super) fn fsinfo(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let node = request.volume.node(request.id)?;
    out.put_u32(0);
    put_node(out, request.volume, &node);
    // Maximum, preferred and unit, of READ and of WRITE.
    for value in [IO_MAX, IO_MAX, 4096, IO_MAX, IO_MAX, 4096, LIST_PREFERRED] {
        out.put_u32(value);
    }
    out.put_u64(i64::MAX.unsigned_abs());
    // Times have a resolution of one nanosecond.
    out.put_u32(0);
    out.put_u32(1);
    out.put_u32(fsinfo::LINK | fsinfo::SYMLINK | fsinfo::HOMOGENEOUS | fsinfo::CAN_SET_TIME);
    Ok(())
}

/// PATHCONF
pub(super) fn pathconf(
    request: &mut Request<'_>,
    _arguments: &mut Decoder<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let node = request.volume.node(request.id)?;
    let space = request.volume.space()?;
    out.put_u32(0);
    put_node(out, request.volume, &node);
    out.put_u32(LINKS_MAX);
    out.put_u32(u32::try_from(space.f_namemax).unwrap_or(255));
    // Long names are refused, `chown` is restricted, case matters and is kept.
    for value in [true, true, false, true] {
        out.put_bool(value);
    }
    Ok(())
}
