//! FUSE request handlers. They encode the responses that `responses.rs` computes.
//!
//! The counter `requests` counts each request once: here, or in the method of `responses.rs` that computes the
//! response. FORGET requests, and writes, which are rejected, are not counted.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use workspace_state::Timestamp;

use crate::inode::attributes_without_content;
use crate::read_ahead::can_read_ahead;
use crate::responses::{FuseResult, FuseServer, ListingEntry, NAME_MAX, ROOT, TTL_FOREVER, TTL_ZERO};

const GENERATION: Generation = Generation(0);
/// Largest request size in bytes; the kernel lowers it to its own limit.
const REQUEST_MAX: u32 = 1 << 20;

/// Capabilities that are requested if the kernel supports them. `AUTO_INVAL_DATA` makes the kernel check the mtime of
/// a directory before it uses its cached listing; only the mtime of the root ever changes.
const REQUESTED_CAPABILITIES: InitFlags = InitFlags::FUSE_DO_READDIRPLUS
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_AUTO_INVAL_DATA)
    .union(InitFlags::FUSE_NO_OPEN_SUPPORT)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    // Allows idmapped mounts. This requires that the kernel checks permissions (`default_permissions`);
    // requests then do not include the user, which is not needed here.
    .union(InitFlags::FUSE_ALLOW_IDMAP);

/// Sends the value of an attribute, or the list of names. A `size` of 0 asks for the size only.
fn send_xattr(result: FuseResult<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for FuseServer {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        let rejected = |_| io::Error::other("the FUSE library rejected a capability that the kernel offered");
        config.add_capabilities(offered & REQUESTED_CAPABILITIES).map_err(rejected)?;
        self.kernel_allows_no_open = offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.kernel_allows_no_opendir = offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // `max_readahead` is left at its default, the maximum that the kernel offers. `max_write` is set because
        // the kernel derives the size limit of all requests from it.
        config
            .set_max_write(REQUEST_MAX)
            .map_err(|_| io::Error::other("the FUSE library rejected the maximum size of requests"))?;
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name.as_bytes()) {
            Ok((attributes, name_ttl)) => {
                reply.entry_with_ttls(&TTL_FOREVER, &name_ttl, &attributes, GENERATION);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.forget_lookups(ino, count);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok((attributes, attribute_ttl)) => reply.attr(&attribute_ttl, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.symlink_target(ino) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.requests.add();
        if self.kernel_allows_no_open {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.requests.add();
        if self.kernel_allows_no_opendir {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(ino, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let done = self.for_each_entry(ino, offset, |next, name, listed| {
            let name = OsStr::from_bytes(name);
            match listed {
                ListingEntry::DotEntry(dot_ino) => {
                    reply.add(INodeNo(dot_ino), next, FileType::Directory, name)
                }
                ListingEntry::Inode(inode) => {
                    let attributes = inode.attributes(inode.identity.inode_number(), self.owner);
                    reply.add(attributes.ino, next, attributes.kind, name)
                }
            }
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        // The root lists snapshots, and symlinks for references. Its entries must not be cached: a listed
        // snapshot is protected from garbage collection (pinned) only once it is looked up, and a reference may
        // move to another snapshot.
        let ttl = if ino.0 == ROOT { TTL_ZERO } else { TTL_FOREVER };
        let (mut end, mut files) = (offset, Vec::new());
        let done = self.for_each_entry(ino, offset, |next, name, listed| {
            let name = OsStr::from_bytes(name);
            let full = match listed {
                ListingEntry::DotEntry(dot_ino) => {
                    let attributes = attributes_without_content(
                        dot_ino,
                        FileType::Directory,
                        0o755,
                        Timestamp(0),
                        self.owner,
                    );
                    reply.add(attributes.ino, next, name, &TTL_ZERO, &attributes, GENERATION)
                }
                ListingEntry::Inode(inode) => {
                    let attributes = self.register(inode);
                    let full = reply.add(attributes.ino, next, name, &ttl, &attributes, GENERATION);
                    if full {
                        self.table.forget(attributes.ino.0, 1);
                    } else if can_read_ahead(inode) {
                        files.push(attributes.ino.0);
                    }
                    full
                }
            };
            if !full {
                end = next;
            }
            full
        });
        match done {
            Ok(()) => {
                // Files are often read in the order of their listing; see `read_ahead.rs`.
                self.read_ahead.record_listing(ino.0, offset..end, &files);
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.requests.add();
        // Reports the size of the file system of the store, with no free space.
        match rustix::fs::statvfs(self.store.path()) {
            Ok(stat) => {
                let block = u32::try_from(stat.f_frsize).unwrap_or(512);
                reply.statfs(stat.f_blocks, 0, 0, stat.f_files, 0, block, NAME_MAX as u32, block);
            }
            Err(errno) => reply.error(Errno::from_i32(errno.raw_os_error())),
        }
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        send_xattr(self.xattr(ino, name.as_bytes()), size, reply);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        send_xattr(self.xattr_names(ino), size, reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.seek(ino, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(errno) => reply.error(errno),
        }
    }

    // Nothing has to be flushed. After `ENOSYS`, the kernel sends no further flush requests.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.requests.add();
        reply.error(Errno::ENOSYS);
    }

    // The kernel rejects these requests because the mount is read-only. They arrive only after a remount as
    // read-write.

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }
}
