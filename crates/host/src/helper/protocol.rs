//! Messages between a process and its helpers.
//!
//! The helper server is this program, started again with one thread. For each task it forks a helper, a process that
//! runs the task and exits.
//!
//! A request is sent to the helper server as one packet with the name of the task. Its first file descriptor
//! is a socket; the others are for the task. Over the socket the client sends the task as JSON, and the
//! helper replies with a `Result`, also as JSON.

use std::os::fd::OwnedFd;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{HelperError, HostErrorKind};
use crate::error::{HostError, Result};

/// First argument of this program when it is started again: as the helper server, or to execute a program in the
/// namespaces of a holder (`namespace/enter.rs`).
pub(crate) const SELF_EXEC_ARG: &str = "internal-host";
/// Maximum length of a task's name in bytes.
pub(super) const TASK_NAME_MAX: usize = 32;
/// Maximum number of file descriptors in a request, including its socket.
pub(super) const FDS_MAX: usize = 5;

/// Task of a helper, a process with one thread.
pub(crate) trait Task: Serialize + DeserializeOwned {
    /// Unique name in requests.
    const NAME: &'static str;
    /// Result of the task.
    type Reply: Serialize + DeserializeOwned;

    /// Runs the task in the helper, which exits afterwards. `fds` are the file descriptors that the client
    /// sent.
    fn run(self, fds: Vec<OwnedFd>) -> Result<Self::Reply>;
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| HostError::of_kind(HostErrorKind::Protocol, error.to_string()))
}

/// Decodes a task, runs it and encodes its reply.
pub(super) fn handle<T: Task>(request: &[u8], fds: Vec<OwnedFd>) -> Vec<u8> {
    let task = serde_json::from_slice::<T>(request)
        .map_err(|error| HostError::of_kind(HostErrorKind::Protocol, format!("unreadable request: {error}")));
    encode_reply(task.and_then(|task| task.run(fds)))
}

/// Encodes a reply. If that fails, encodes the error of encoding.
pub(super) fn encode_reply<R: Serialize>(reply: Result<R>) -> Vec<u8> {
    let reply = reply.map_err(HelperError::from);
    encode(&reply).or_else(|error| encode(&Err::<R, _>(HelperError::from(error)))).unwrap_or_default()
}

/// Decodes a reply. Fails with [`HostErrorKind::Protocol`] if it is malformed, and otherwise with the error
/// of the helper, if it is one.
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
