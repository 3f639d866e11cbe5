//! Checks of the whole repository.
//!
//! [`layers`] restricts dependencies between crates, [`cycles`] those between files, [`policy`] external crates,
//! and [`doc_comments`] the wording of documentation. `tests/repository.rs` runs all of them on this repository; the modules' own
//! tests show that each can fail.

pub mod cycles;
pub mod doc_comments;
pub mod layers;
pub mod metadata;
mod modules;
pub mod policy;
