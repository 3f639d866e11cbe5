//! Request on the files of an export, and the parts of requests and results that many procedures share.
//!
//! A *volume* is the directory of an export with the table that maps the ids in file handles to files. Its *generation*
//! is a random number in all of these handles.

use std::cell::RefCell;
use std::ffi::CStr;
use std::sync::Arc;

use super::caller::Caller;
use super::encode;
use crate::export::Access;
use crate::handle::Handle;
use crate::hooks::{Refusal, RefusalReason};
use crate::server::{Context, Found, VolumeInUse};
use crate::state_dir::KEY_LEN;
use crate::table::FileId;
use crate::volume::{Descriptor, Files, Name, Stat, Volume, stat_open};
use crate::wire::{Decoder, Status, XdrError};

/// Maximum length of a file handle in NFSv3, in bytes.
const HANDLE_MAX: usize = 64;

/// Maximum length of a name that is decoded. A longer one fails the call with `GARBAGE_ARGS`. [`Name::parse`] has a
/// lower limit, and returns the NFS error `NAMETOOLONG` for the names in between.
const NAME_MAX: usize = 4096;

/// Failure of a procedure whose reply the dispatcher writes. A procedure that fails after it has read attributes
/// writes the reply itself and returns `Ok`, because the reply contains these attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The arguments could not be decoded. The RPC reply is `GARBAGE_ARGS`.
    Garbage,
    /// NFS error. The reply has no attributes, because none were read.
    Status(Status),
}

impl From<XdrError> for Failure {
    fn from(_: XdrError) -> Self {
        Self::Garbage
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Status(error.into())
    }
}

/// Skips a handle.
pub(super) fn skip_handle(arguments: &mut Decoder<'_>) -> Result<(), XdrError> {
    arguments.opaque(HANDLE_MAX).map(|_| ())
}

/// Part of a [`Caller`] that procedures need.
pub(super) struct RequestCaller<'a> {
    pub(super) context: &'a Context,
    /// Called before anything that may take long, so that another thread reads the next request of the connection.
    pub(super) before_waiting: &'a dyn Fn(),
}

/// Request on the files of an export.
pub(super) struct Request<'a> {
    pub(super) caller: RequestCaller<'a>,
    pub(super) volume: &'a Files<'a>,
    /// File of the first handle in the arguments. LINK and RENAME have a second one, see
    /// [`other_handle`](Self::other_handle).
    pub(super) id: FileId,
}

/// Open directory in which an entry is changed or looked up.
pub(super) struct Parent {
    pub(super) id: FileId,
    pub(super) open: Arc<Descriptor>,
    /// Attributes of the directory before the operation.
    pub(super) before: Stat,
    /// Inode number of the directory in NFS attributes.
    fileid: u64,
}

/// Returns the handle at the beginning of arguments. `None` if this server has not made it.
pub(super) fn peek_handle(key: &[u8; KEY_LEN], mut arguments: Decoder<'_>) -> Option<Handle> {
    Handle::decode(key, arguments.opaque(HANDLE_MAX).ok()?)
}

/// Decodes a handle and finds its export. Fails if the address of the client is not in the export's client list.
///
/// The removal or replacement of the export's directory waits until the returned [`VolumeInUse`] is dropped. While the
/// export has no directory, the client gets `JUKEBOX` and tries again later.
pub(super) fn open_handle(
    caller: &Caller<'_>,
    arguments: &mut Decoder<'_>,
) -> Result<(VolumeInUse, FileId), Failure> {
    let bytes = arguments.opaque(HANDLE_MAX)?;
    let context = caller.context;
    let refuse = |export, reason| {
        context.observer.refused(Refusal { client: caller.client, export, reason });
    };
    let Some(handle) = Handle::decode(&context.key, bytes) else {
        refuse(None, RefusalReason::ForgedHandle);
        return Err(Status::BadHandle.into());
    };
    let volume = match context.registry.by_generation(handle.generation) {
        Found::Volume(volume) => volume,
        Found::Detached => return Err(Status::Jukebox.into()),
        Found::Nothing => return Err(Status::Stale.into()),
    };
    if !volume.rules().clients.contains(caller.client.ip()) {
        refuse(Some(&volume.rules().name), RefusalReason::Address);
        return Err(Status::Access.into());
    }
    caller.used_export.set(handle.generation);
    Ok((volume, handle.id))
}

impl Caller<'_> {
    /// Calls `work` with a request on a file.
    pub(super) fn with_request<T>(
        &mut self,
        volume: &Volume,
        id: FileId,
        work: impl FnOnce(&mut Request<'_>) -> T,
    ) -> T {
        let hook = RefCell::new(&mut *self.before_waiting);
        let before_waiting = || (hook.borrow_mut())();
        let files = volume.files(&before_waiting);
        let caller = RequestCaller { context: self.context, before_waiting: &before_waiting };
        work(&mut Request { caller, volume: &files, id })
    }
}

impl Request<'_> {
    /// Returns the key of the MAC in file handles.
    pub(super) fn key(&self) -> &[u8; KEY_LEN] {
        &self.caller.context.key
    }

    /// Fails if the export is read-only.
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        match self.volume.rules().access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Status::RoFs),
        }
    }

    /// Fails if the disk limit of the export allows no more writes. `bytes` is the length of a write, or 0 for other
    /// operations that take space, such as the creation of an entry.
    pub(super) fn check_space(&self, bytes: u64) -> Result<(), Status> {
        if self.volume.rules().disk_limit.allows(bytes) { Ok(()) } else { Err(Status::DQuot) }
    }

    /// Decodes a second handle, which must be of the same export. The inner error is an NFS error about the handle; it
    /// is separate, so that its reply can contain attributes.
    pub(super) fn other_handle(
        &self,
        arguments: &mut Decoder<'_>,
    ) -> Result<Result<FileId, Status>, Failure> {
        let bytes = arguments.opaque(HANDLE_MAX)?;
        Ok(match Handle::decode(self.key(), bytes) {
            None => Err(Status::BadHandle),
            Some(handle) if handle.generation != self.volume.generation() => Err(Status::XDev),
            Some(handle) => Ok(handle.id),
        })
    }

    /// Opens the directory of the first handle, and reads its attributes.
    pub(super) fn parent(&self) -> Result<Parent, Status> {
        self.parent_of(self.id)
    }

    /// Opens the directory with this id, and reads its attributes.
    pub(super) fn parent_of(&self, id: FileId) -> Result<Parent, Status> {
        let open = self.volume.directory(id)?;
        let before = stat_open(&*open)?;
        if before.is_removed() {
            return Err(Status::Stale);
        }
        let fileid = self.volume.fileid(id, &before);
        Ok(Parent { id, open, before, fileid })
    }
}

impl Parent {
    /// Returns the inode number of the directory in NFS attributes.
    pub(super) fn fileid(&self) -> u64 {
        self.fileid
    }

    /// Appends `wcc_data`: the attributes before the operation and the present ones.
    pub(super) fn put_wcc(&self, out: &mut Vec<u8>, volume: &Volume) {
        let after = stat_open(&*self.open).ok();
        encode::put_wcc(out, volume, self.fileid, Some(&self.before), after.as_ref());
    }

    /// Appends `post_op_attr` with the attributes from before the operation, for operations that do not change the
    /// directory.
    pub(super) fn put_before(&self, out: &mut Vec<u8>, volume: &Volume) {
        encode::put_post_op(out, volume, self.fileid, Some(&self.before));
    }

    /// Returns the location of the entry with this name: the id of the directory, and the name.
    pub(super) fn entry<'a>(&self, name: &'a CStr) -> (FileId, &'a CStr) {
        (self.id, name)
    }
}

/// Decodes a name. The inner error is an NFS error about the name; it is separate, so that its reply can contain
/// attributes.
pub(super) fn decode_name(arguments: &mut Decoder<'_>) -> Result<Result<Name, Status>, XdrError> {
    Ok(Name::parse(arguments.opaque(NAME_MAX)?))
}
