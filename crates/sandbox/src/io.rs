//! Files, watches and TCP ports of a running sandbox.
//!
//! The I/O worker of the guest agent serves them, with the rights of the sandbox's user, so that they work on every
//! runtime and at every path, and stop when the sandbox is frozen. The worker is started by the first request and
//! closed when it has been idle. It opens two connections to the server, its lanes: one for interactive requests, one
//! for the content of files (`worker.rs`). A lane carries requests with their replies. A request can open a channel, a
//! stream of frames in both directions (`lane.rs`, `channel.rs`). A worker is part of the sandbox: everything that it
//! sends may be forged, and is bounded.

pub(crate) mod channel;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod lane;
pub(crate) mod memory;
pub(crate) mod path;
pub(crate) mod ports;
pub(crate) mod tree;
pub(crate) mod watch;
pub(crate) mod worker;
