//! What the server and the guest agent of a sandbox say to each other.
//!
//! [`v1`] is made of `proto/workspace/agent/v1/agent.proto`; [`output`] is how what programs print is kept in
//! files that both sides reach; [`handover`] is what a guest that dials over the network starts with; [`scheduling`]
//! keeps both quick on a busy machine.

#[doc(hidden)]
pub mod fuzzing;
pub mod handover;
pub mod output;
pub mod scheduling;

/// The contract in its first version.
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

/// The version of the contract that this build speaks. A guest tells its own when it registers; a server works
/// with every version up to its own.
pub const GENERATION: u32 = 1;

/// What [`v1`] was made of, for the test that keeps it compatible.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.binpb"));
