//! Encoding of requests and replies: record marking, RPC headers, XDR, and the numbers of NFSv3 and MOUNT v3.
//!
//! The decoder borrows from the received record, and the encoder writes into the buffer that is sent. So names and file
//! content are not copied once more.

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
