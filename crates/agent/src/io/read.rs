//! Reading files.

use std::os::fd::OwnedFd;

use rustix::fs::fstat;
use rustix::io::{Errno, pread};
use workspace_agent_protocol::Bytes;
use workspace_agent_protocol::v1::io_reply::Result as Reply;
use workspace_agent_protocol::v1::{FileEntry, IoReply, ReadFile};

use super::channel::{FRAME_MAX, RequestHandle};
use super::failure::{AtPath as _, Result};
use super::path::{LastSymlink, describe, describe_at, locate, open_file};

/// Maximum number of bytes that are part of the reply.
const INLINE_MAX: u64 = 64 << 10;

/// Returns the entry at a path.
pub(crate) fn stat(path: &[u8], no_follow: bool) -> Result<FileEntry> {
    let located = locate(path, if no_follow { LastSymlink::NoFollow } else { LastSymlink::Follow })?;
    // With an empty name, `readlinkat` reads the symlink that the descriptor refers to.
    Ok(describe_at(&located.fd, b"", path, &located.stat))
}

/// Reads a file: replies with its entry and, if it is small, its content. Otherwise sends the content as frames.
pub(crate) fn read(handle: &RequestHandle, request: &ReadFile) -> Result<()> {
    let path = &request.path;
    let located = locate(path, LastSymlink::Follow)?;
    let file = open_file(&located, path)?;
    let entry = describe(path, &fstat(&file).at(path)?, Vec::new());
    let available = entry.size.saturating_sub(request.offset);
    let length = if request.length == 0 { available } else { available.min(request.length) };
    let reply = IoReply { result: Some(Reply::Entry(entry)), ..IoReply::default() };
    if length <= INLINE_MAX {
        let content = read_at(&file, request.offset, length as usize).at(path)?;
        return handle.block_on(handle.reply(IoReply { content: Some(content), ..reply }));
    }
    handle.block_on(handle.reply(reply))?;
    send(handle, &file, request.offset, length, path)
}

/// Sends a range of a file. Ends early if the file has become shorter.
fn send(handle: &RequestHandle, file: &OwnedFd, offset: u64, length: u64, path: &[u8]) -> Result<()> {
    let end = offset.saturating_add(length);
    let mut position = offset;
    while position < end {
        handle.check_cancelled()?;
        let wanted = usize::try_from(end - position).unwrap_or(usize::MAX).min(FRAME_MAX);
        let data = read_at(file, position, wanted).at(path)?;
        if data.is_empty() {
            break;
        }
        position += data.len() as u64;
        handle.block_on(handle.send_data(data))?;
    }
    handle.block_on(handle.end())
}

/// Reads up to `len` bytes; fewer only at the end of the file.
pub(crate) fn read_at(file: &OwnedFd, offset: u64, len: usize) -> std::result::Result<Bytes, Errno> {
    let mut buffer = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match pread(file, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer.into())
}
