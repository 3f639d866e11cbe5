//! Encoding of the parts that many results share: attributes, times and file handles.
//!
//! `volume` is the directory of an export; its generation is a random number that serves as `fsid`. `fileid` is the
//! inode number that clients see.

use rustix::fs::{FileType, StatxTimestamp};

use crate::handle::Handle;
use crate::state_dir::KEY_LEN;
use crate::table::FileId;
use crate::volume::{FoundFile, Stat, Volume};
use crate::wire::{Encode, FileKind};

/// Length of `fattr3` in bytes.
const ATTRIBUTES_LEN: usize = 84;

/// Appends `fattr3`.
pub(super) fn put_attributes(out: &mut Vec<u8>, volume: &Volume, fileid: u64, stat: &Stat) {
    let stat = &stat.0;
    out.reserve(ATTRIBUTES_LEN);
    out.put_u32(kind(stat.stx_mode.into()) as u32);
    out.put_u32(u32::from(stat.stx_mode) & 0o7777);
    out.put_u32(stat.stx_nlink);
    out.put_u32(stat.stx_uid);
    out.put_u32(stat.stx_gid);
    out.put_u64(stat.stx_size);
    out.put_u64(stat.stx_blocks.saturating_mul(512));
    out.put_u32(stat.stx_rdev_major);
    out.put_u32(stat.stx_rdev_minor);
    out.put_u64(volume.generation());
    out.put_u64(fileid);
    put_time(out, &stat.stx_atime);
    put_time(out, &stat.stx_mtime);
    put_time(out, &stat.stx_ctime);
}

/// Returns the type of a file with this `st_mode`.
fn kind(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

/// Appends `nfstime3`. Its seconds are unsigned, but clients and other servers use two's complement for times before
/// 1970.
fn put_time(out: &mut Vec<u8>, time: &StatxTimestamp) {
    let [.., a, b, c, d] = time.tv_sec.to_be_bytes();
    out.put_fixed(&[a, b, c, d]);
    out.put_u32(time.tv_nsec);
}

/// Appends `post_op_attr` of a file that was found by its handle, with its attributes.
pub(super) fn put_file(out: &mut Vec<u8>, volume: &Volume, file: &FoundFile) {
    put_post_op(out, volume, file.fileid, Some(&file.stat));
}

/// Appends `post_op_attr`. `None` if the attributes could not be read.
pub(super) fn put_post_op(out: &mut Vec<u8>, volume: &Volume, fileid: u64, stat: Option<&Stat>) {
    out.put_bool(stat.is_some());
    if let Some(stat) = stat {
        put_attributes(out, volume, fileid, stat);
    }
}

/// Appends `wcc_data`: attributes before and after an operation. `None` for those that could not be read.
pub(super) fn put_wcc(
    out: &mut Vec<u8>,
    volume: &Volume,
    fileid: u64,
    before: Option<&Stat>,
    after: Option<&Stat>,
) {
    out.put_bool(before.is_some());
    if let Some(Stat(before)) = before {
        out.put_u64(before.stx_size);
        put_time(out, &before.stx_mtime);
        put_time(out, &before.stx_ctime);
    }
    put_post_op(out, volume, fileid, after);
}

/// Appends `nfs_fh3`.
pub(super) fn put_handle(out: &mut Vec<u8>, key: &[u8; KEY_LEN], volume: &Volume, id: FileId) {
    out.put_opaque(&Handle { generation: volume.generation(), id }.encode(key));
}

/// Appends `post_op_fh3`.
pub(super) fn put_post_op_handle(out: &mut Vec<u8>, key: &[u8; KEY_LEN], volume: &Volume, id: FileId) {
    out.put_bool(true);
    put_handle(out, key, volume, id);
}
