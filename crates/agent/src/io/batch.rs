//! Batches of file operations (create a directory, move, copy, remove, …) that the server sends in one request.

use rustix::fs::{FileType, Mode, RenameFlags, renameat, renameat_with};
use rustix::io::Errno;
use workspace_agent_protocol::v1::file_operation::Operation;
use workspace_agent_protocol::v1::{
    ChangeMode, FileBatch, FileBatchResult, FileOperation, IoFailureKind, MakeDirectory, MovePath,
};

use super::channel::RequestHandle;
use super::copy::copy;
use super::failure::{AtPath as _, Failure, NO_PATH, Result};
use super::path::{self, DIRECTORY_MODE, LastSymlink, Parents, locate, make_directories, open_parent};
use super::remove::remove;
use super::write::{sync_directory, write_all};

/// Performs operations in order, up to the first that fails.
pub(crate) fn run(handle: &RequestHandle, request: FileBatch) -> FileBatchResult {
    let mut completed = 0;
    for operation in request.operations {
        if let Err(failure) = handle.check_cancelled().and_then(|()| perform(handle, operation)) {
            return FileBatchResult { completed, failure: Some(failure.into_message()) };
        }
        completed += 1;
    }
    FileBatchResult { completed, failure: None }
}

fn perform(handle: &RequestHandle, operation: FileOperation) -> Result<()> {
    match operation.operation {
        Some(Operation::Mkdir(request)) => make_directory(&request),
        Some(Operation::Move(request)) => move_entry(&request),
        Some(Operation::Copy(request)) => copy(handle, &request),
        Some(Operation::Chmod(request)) => change_mode(&request),
        Some(Operation::Remove(request)) => remove(handle, &request),
        Some(Operation::Write(request)) => write_all(request).map(drop),
        None => {
            let message = "the guest agent of this sandbox is too old for the operation; fork the sandbox, and use the fork";
            Err(Failure::new(IoFailureKind::Unsupported, NO_PATH, message))
        }
    }
}

fn make_directory(request: &MakeDirectory) -> Result<()> {
    let path = &request.path;
    let found = match request.parents {
        // The root exists. An empty path is refused.
        true if path.iter().all(|byte| *byte == b'/') => return path::check_request_path(path),
        true => open_parent(path, Parents::Create)?,
        false => open_parent(path, Parents::MustExist)?,
    };
    let mode = request.mode.map_or(DIRECTORY_MODE, Mode::from_raw_mode);
    match rustix::fs::mkdirat(&found.parent, found.name.as_slice(), mode) {
        Err(Errno::EXIST) if request.parents => {
            // Fails for anything but a directory.
            make_directories(path).map(drop)
        }
        Err(error) => Err(Failure::of_errno(error, path)),
        // The mode of a new directory is reduced by the umask.
        Ok(()) => match request.mode {
            Some(mode) => change_mode(&ChangeMode { path: path.clone(), mode }),
            None => Ok(()),
        },
    }
}

fn move_entry(request: &MovePath) -> Result<()> {
    let (from, to) =
        (open_parent(&request.from, Parents::MustExist)?, open_parent(&request.to, Parents::MustExist)?);
    let (old, new) = (from.name.as_slice(), to.name.as_slice());
    let moved = match request.replace {
        true => renameat(&from.parent, old, &to.parent, new),
        false => renameat_with(&from.parent, old, &to.parent, new, RenameFlags::NOREPLACE),
    };
    moved.map_err(|error| {
        // The first four are about the entry that would be replaced, the others about the directory that gets the name.
        let is_at_target = matches!(
            error,
            Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR | Errno::NOSPC | Errno::DQUOT
        );
        Failure::of_errno(error, if is_at_target { &request.to } else { &request.from })
    })?;
    sync_directory(&to.parent).at(&request.to)
}

/// Changes the permissions of a directory or a regular file. Special files, and files of kernel file systems such as
/// `/proc`, are refused. Symlinks are followed, since they have no permissions of their own.
fn change_mode(request: &ChangeMode) -> Result<()> {
    let path = &request.path;
    let located = locate(path, LastSymlink::Follow)?;
    let mode = Mode::from_raw_mode(request.mode & 0o7777);
    if located.file_type() != FileType::Directory {
        path::check_ordinary_file(&located, path)?;
    }
    rustix::fs::chmod(located.proc_path(), mode).at(path)
}
