//! Workspaces: an ordinary directory per agent, made from a snapshot.
//!
//! [`Workspaces`] makes them, says what was changed in them, commits that, and clears them away; what it knows of them is
//! on disk, so that another process finds everything again. How one is made is a [`Provider`]'s business:
//!
//! - **overlay**: the kernel's, over layers that all workspaces share; costs what is changed.
//! - **clone**: every file shares its blocks with a layer until it is written to.
//! - **copy**: every file is written; works everywhere.
//!
//! `layers.rs` has the layers and the stacks they form, `delta.rs` what a layer between two trees holds, `upper.rs` how
//! changes are read from what the kernel writes, `lazy.rs` what stands in for layers that are not there yet. Overlays, and
//! with them these, are Linux's alone; on macOS there are clone and copy.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays need all of it"))]

mod base;
mod choice;
mod copy;
mod error;
mod here;
mod layers;
mod lazy_command;
mod provider;
mod record;
mod special;
mod workspaces;

#[cfg(target_os = "linux")]
mod access;
#[cfg(target_os = "linux")]
mod delta;
#[cfg(target_os = "linux")]
mod index;
#[cfg(target_os = "linux")]
mod lazy;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod upper;

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
use elsewhere::{access, delta, overlay};

pub use base::{Base, Materialize};
pub use choice::{Choice, Chosen};
pub use error::{Result, WorkspaceError, says_full};
pub use layers::Collected;
pub use lazy_command::LazyCommand;
pub use provider::{Committed, Kind, Place, Present, Provider, Under};
pub use record::{Generation, Phase, Record};
pub use workspaces::{
    Bounds, Cancellable, Changes, Made, New, Options, Prepared, State, Switched, Usage, Workspaces,
};
