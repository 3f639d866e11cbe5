//! Encoding of requests and replies: records, RPC and XDR.
//!
//! The decoder borrows from the record, and the encoder writes into the buffer that is sent, so names and content
//! are not copied.

mod nfs;
mod record;
mod rpc;
mod xdr;

pub(crate) use self::nfs::{
    AccessRights, FileKind, MOUNT_PROGRAM, MOUNT_VERSION, MountStatus, NFS_PROGRAM, NFS_VERSION, SetTime,
    Stability, Status, fsinfo,
};
pub(crate) use self::record::{RECORD_MAX, RecordError, RecordReader, Source};
pub(crate) use self::rpc::{
    Accepted, Call, CallError, REPLY_HEADER_LEN, begin_reply, finish_reply, put_auth_error,
    put_version_mismatch,
};
pub(crate) use self::xdr::{Decoder, Encode, XdrError};
