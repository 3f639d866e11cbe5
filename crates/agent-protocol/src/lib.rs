//! Protocol between the server and the guest agent of a sandbox.
//!
//! [`v1`] is generated from `proto/workspace/agent/v1/agent.proto` (`make generate`); [`output`] is the format of
//! output files that both sides access; [`start_parameters`] are the credentials and addresses of a guest agent
//! that connects over the network; [`scheduling`] reduces the latency of both sides on a busy machine.

#[doc(hidden)]
pub mod fuzzing;
pub mod output;
pub mod scheduling;
pub mod start_parameters;

/// First version of the protocol.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v1 {
    include!("generated/workspace.agent.v1.rs");
}

/// Content of files in messages, which is shared and not copied.
pub use prost::bytes::Bytes;

/// Protocol version of this build. A guest agent sends its version when it registers. A server supports all
/// versions up to its own.
pub const PROTOCOL_VERSION: u32 = 1;

/// Id in the message `RequestFailed` by which an agent reports that it could not start its I/O worker.
pub const IO_WORKER_ID: &str = "io";
