//! Real directories: taking snapshots of them and checking snapshots out into them.
//!
//! Everything here works relative to an open directory and never follows a symlink inside it, so that
//! nothing outside is read or written whatever the tree or the directory holds.

mod attributes;
mod checkout;
mod error;
mod ignores;
mod path;
mod read;
mod scan;
mod stat_index;
mod state;
mod switch;

pub use checkout::{CheckoutOptions, CheckoutReport, checkout};
pub use error::DirectoryError;
pub use scan::{SkipReason, Skipped, SnapshotOptions, SnapshotReport, snapshot_directory};
