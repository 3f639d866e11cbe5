//! Checks over the whole repository, as pure functions over what `cargo metadata` prints.
//!
//! [`layers`] says which crate may depend on which, [`policy`] which outside crates may be used at all.
//! `tests/repository.rs` runs both on this repository; the modules' own tests show that each can fail.

pub mod layers;
pub mod metadata;
pub mod policy;
