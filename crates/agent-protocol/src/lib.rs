//! Protocol between the server and the guest agent of a sandbox.
//!
//! [`v1`] is generated from `proto/workspace/agent/v1/agent.proto`; [`output`] is the format of output files
//! that both sides access; [`handover`] are the start parameters of a guest that connects over the network;
//! [`scheduling`] reduces the latency of both on a busy machine.

#[doc(hidden)]
pub mod fuzzing;
pub mod handover;
pub mod output;
pub mod scheduling;

/// First version of the protocol.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "made by a generator"
)]
pub mod v1 {
    tonic::include_proto!("workspace.agent.v1");
}

/// Protocol version of this build. A guest sends its own when it registers; a server supports all versions up
/// to its own.
pub const GENERATION: u32 = 1;

/// Descriptors from which [`v1`] was generated, for the compatibility test.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.binpb"));
