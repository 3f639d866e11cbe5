//! Writes files and symlinks atomically: under a temporary name, or without a name, until they are complete.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fstat, ftruncate, futimens, renameat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::chunker::{BLOCK, is_zero};
use crate::directory::error::{Context, Result};
use crate::directory::temporary_files::temporary_name;
use crate::directory::xattrs::{self, ExistingXattrs};
use crate::entry::Node;
use crate::error::StoreError;
use crate::failpoint;
use crate::node::{Extent, FileNode, Xattrs};
use crate::platform::{
    DIRECTORY_HANDLE_FLAGS, IfExists, REFLINK_COPIES_XATTRS, create_named, create_unnamed, link_unnamed,
    open_beneath, reflink, rename_into_place,
};
use crate::snapshot::Timestamp;

use super::Switch;

impl Switch<'_> {
    /// Writes a file or a symlink. `if_exists` says if it may replace an existing entry.
    pub(super) fn write_file_or_symlink(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        node: &Node,
        modified: Option<Timestamp>,
        if_exists: IfExists,
    ) -> Result<()> {
        match node {
            Node::Symlink(link) => {
                self.write_symlink(fd, entry_path, name, &link.target, modified, if_exists)
            }
            Node::File(node) => self.write_file(fd, entry_path, name, node, modified, if_exists),
            Node::Directory(_) => unreachable!("directories are made elsewhere"),
        }
    }

    /// Writes a symlink.
    fn write_symlink(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        target: &[u8],
        modified: Option<Timestamp>,
        if_exists: IfExists,
    ) -> Result<()> {
        let replaces = if_exists == IfExists::Replace;
        let temporary = self.temporary_name();
        let created_name: &[u8] = if replaces { &temporary } else { name };
        match symlinkat(target, fd, created_name) {
            Err(Errno::EXIST) => return Err(self.name_collision(entry_path)),
            other => other.context("create", &self.full_path(entry_path))?,
        }
        if let Some((user, group)) = self.owner(&Xattrs::new()) {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            chownat(fd, created_name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
                .context("change the owner of", &self.full_path(entry_path))?;
        }
        if let Some(modified) = modified {
            utimensat(fd, created_name, &modified.file_times(), AtFlags::SYMLINK_NOFOLLOW)
                .context("set the times of", &self.full_path(entry_path))?;
        }
        if replaces {
            renameat(fd, created_name, fd, name).context("replace", &self.full_path(entry_path))?;
        }
        Ok(())
    }

    /// Writes a file. Creates it without a name if the file system supports that, or else under a temporary name. On
    /// failure, the temporary file is removed.
    pub(super) fn write_file(
        &self,
        fd: &OwnedFd,
        entry_path: &[u8],
        name: &[u8],
        node: &FileNode,
        modified: Option<Timestamp>,
        if_exists: IfExists,
    ) -> Result<()> {
        let replaces = if_exists == IfExists::Replace;
        let temporary = self.temporary_name();
        let mode = Mode::RUSR | Mode::WUSR;
        let source = self.share_source(entry_path, node.size());
        let unnamed =
            create_unnamed(fd, mode).context("create a file beside", &self.full_path(entry_path))?;
        let mut has_temporary_name = unnamed.is_none();
        let (file, is_reflink) = match unnamed {
            Some(file) => {
                let is_reflink = source.is_some_and(|source| reflink(&file, &source));
                (file, is_reflink)
            }
            None => create_named(fd, &temporary, mode, source.as_ref())
                .context("create", &self.full_path(entry_path))?,
        };
        let file = File::from(file);
        let written = self.write_content_and_attributes(&file, is_reflink, entry_path, node, modified);
        let placed = written.and_then(|()| {
            failpoint::hit("checkout-file").context("write", &self.full_path(entry_path))?;
            if !has_temporary_name {
                let link_name: &[u8] = if replaces { &temporary } else { name };
                match link_unnamed(&file, fd, link_name) {
                    Err(Errno::EXIST) if !replaces => return Err(self.name_collision(entry_path)),
                    other => other.context("name", &self.full_path(entry_path))?,
                }
                has_temporary_name = replaces;
            }
            if has_temporary_name {
                failpoint::hit("checkout-named").context("write", &self.full_path(entry_path))?;
                match rename_into_place(fd, &temporary, name, if_exists) {
                    Err(Errno::EXIST) if !replaces => return Err(self.name_collision(entry_path)),
                    other => other.context("replace", &self.full_path(entry_path))?,
                }
                has_temporary_name = false;
            }
            Ok(())
        });
        if placed.is_err() && has_temporary_name {
            // The original error is more useful than a failure to clean up.
            unlinkat(fd, temporary.as_slice(), AtFlags::empty()).unwrap_or(());
        }
        placed
    }

    /// Writes content and attributes of a new file. `is_reflink` is true if the file already has its content.
    fn write_content_and_attributes(
        &self,
        file: &File,
        is_reflink: bool,
        entry_path: &[u8],
        node: &FileNode,
        modified: Option<Timestamp>,
    ) -> Result<()> {
        let full_path = || self.full_path(entry_path);
        if !is_reflink {
            self.write_content(file, entry_path, node)?;
        }
        self.bytes.fetch_add(node.size(), Ordering::Relaxed);
        let existing = match is_reflink && REFLINK_COPIES_XATTRS {
            true => ExistingXattrs::Possible,
            false => ExistingXattrs::None,
        };
        xattrs::write(file, &self.written_xattrs(&node.xattrs), existing)
            .context("set the attributes of", &full_path())?;
        // Before the mode: changing the owner clears set-id bits.
        self.set_owner(file, &node.xattrs, entry_path)?;
        fchmod(file, self.mode(node.mode)).context("change the mode of", &full_path())?;
        if let Some(modified) = modified {
            futimens(file, &modified.file_times()).context("set the times of", &full_path())?;
        }
        Ok(())
    }

    /// Opens the file at the same path in one of the `share` directories, as the source of a reflink copy. Returns
    /// `None` if there is no file of this size.
    fn share_source(&self, entry_path: &[u8], size: u64) -> Option<OwnedFd> {
        let source = self.options.share.iter().find_map(|directory| {
            let root = rustix::fs::open(directory, DIRECTORY_HANDLE_FLAGS, Mode::empty()).ok()?;
            open_beneath(&root, entry_path, OFlags::RDONLY | OFlags::NONBLOCK).ok()
        })?;
        let same_size = fstat(&source).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size as u64 == size
        });
        same_size.then_some(source)
    }

    /// Writes the content of a node. Does not write holes and blocks of zeros.
    fn write_content(&self, file: &File, entry_path: &[u8], node: &FileNode) -> Result<()> {
        let full_path = || self.full_path(entry_path);
        let mut offset = 0;
        for extent in &node.extents {
            if let Extent::Data { chunk, len } = extent {
                let content = self.store.read_chunk(chunk)?;
                if content.len() as u64 != *len {
                    return Err(StoreError::MissingChunk(*chunk).into());
                }
                self.count_write(*len, entry_path)?;
                write_sparsely(file, &content, offset).context("write", &full_path())?;
            }
            offset += extent.len();
        }
        let ends_in_hole = matches!(node.extents.last(), Some(Extent::Hole { .. }));
        // `write_sparsely` leaves out blocks of zeros, even at the end of a single extent, so the file may be too
        // short.
        if ends_in_hole || node.extents.len() == 1 {
            ftruncate(file, offset).context("write", &full_path())?;
        }
        Ok(())
    }

    /// Returns an unused name for a temporary file.
    pub(super) fn temporary_name(&self) -> Vec<u8> {
        temporary_name(self.checkout_id, self.next_temporary.fetch_add(1, Ordering::Relaxed))
    }
}

/// Writes content at `offset`. Leaves out blocks of zeros, which become holes.
fn write_sparsely(file: &File, content: &[u8], offset: u64) -> std::io::Result<()> {
    if content.len() < BLOCK || !content.chunks(BLOCK).any(is_zero) {
        return file.write_all_at(content, offset);
    }
    let mut position = offset;
    let mut rest = content;
    while !rest.is_empty() {
        // Blocks are aligned in the file, not in the content.
        let len = (BLOCK - (position % BLOCK as u64) as usize).min(rest.len());
        let (block, tail) = rest.split_at(len);
        if !(len == BLOCK && is_zero(block)) {
            file.write_all_at(block, position)?;
        }
        position += len as u64;
        rest = tail;
    }
    Ok(())
}
