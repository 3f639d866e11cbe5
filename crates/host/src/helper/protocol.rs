//! Messages between a process and its helpers.
//!
//! A request is sent to the helper server as one packet: the name of the task, and as file descriptors the socket for
//! the rest of the request and its reply, then those that the task needs. Over that socket goes the task as JSON, and
//! back comes a `Result` of its reply, also as JSON.

use std::os::fd::OwnedFd;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{HelperError, HostErrorKind};
use crate::error::{HostError, Result};

/// First argument of this program when it is started again for this crate.
pub(crate) const SELF_EXEC_ARG: &str = "internal-host";
/// Upper bound of the length of a task's name, in bytes.
pub(super) const TASK_NAME_MAX: usize = 32;
/// Upper bound of the number of file descriptors in a request, that of its socket included.
pub(super) const FDS_MAX: usize = 5;

/// Work that is done by a helper, a process with one thread.
pub(crate) trait Task: Serialize + DeserializeOwned {
    /// Name in requests; no two tasks have the same.
    const NAME: &'static str;
    /// Result of the task.
    type Reply: Serialize + DeserializeOwned;

    /// Does the work; called in the helper, which ends afterwards. `fds` are those that the client sent.
    fn run(self, fds: Vec<OwnedFd>) -> Result<Self::Reply>;
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| HostError::of_kind(HostErrorKind::Protocol, error.to_string()))
}

/// Decodes a task, runs it and encodes what came of it.
pub(super) fn handle<T: Task>(request: &[u8], fds: Vec<OwnedFd>) -> Vec<u8> {
    let task = serde_json::from_slice::<T>(request)
        .map_err(|error| HostError::of_kind(HostErrorKind::Protocol, format!("unreadable request: {error}")));
    encode_reply(task.and_then(|task| task.run(fds)))
}

/// Encodes a reply, or the error if there is none.
pub(super) fn encode_reply<R: Serialize>(reply: Result<R>) -> Vec<u8> {
    let reply = reply.map_err(HelperError::from);
    encode(&reply).or_else(|error| encode(&Err::<R, _>(HelperError::from(error)))).unwrap_or_default()
}

/// Decodes a reply.
pub(super) fn decode_reply<R: DeserializeOwned>(reply: &[u8]) -> Result<R> {
    let reply: std::result::Result<R, HelperError> = serde_json::from_slice(reply)
        .map_err(|error| HostError::of_kind(HostErrorKind::Protocol, format!("unreadable reply: {error}")))?;
    reply.map_err(HostError::Helper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_keeps_the_kind_and_errno_of_an_error() {
        let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let error = HostError::System { action: "write".to_owned(), source };
        let text = error.to_string();
        let read = decode_reply::<u32>(&encode_reply::<u32>(Err(error))).unwrap_err();
        assert_eq!((read.kind(), read.os_error()), (HostErrorKind::System, Some(libc::ENOSPC)));
        assert_eq!(read.to_string(), text);
        assert_eq!(decode_reply::<u32>(&encode_reply(Ok(7_u32))).unwrap(), 7);
        assert_eq!(decode_reply::<u32>(b"{").unwrap_err().kind(), HostErrorKind::Protocol);
    }
}
