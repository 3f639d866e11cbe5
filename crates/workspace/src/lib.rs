//! Workspaces: an ordinary directory per agent, made from a snapshot.
//!
//! [`Workspaces`] creates them, computes their changes, commits them, and removes them. Its state is on disk,
//! so that another process can continue. A [`Provider`] decides how a workspace is made:
//!
//! - **overlay**: the kernel's overlay file system, over layers that all workspaces share. Only changed files
//!   take disk space.
//! - **clone**: every file is a reflink of one in a layer.
//! - **copy**: every file is written; works everywhere.
//!
//! An ordinary user may mount only in a user namespace. Overlays are therefore mounted in the namespaces that
//! a *namespace holder* keeps, a process of its own ([`NamespaceHolder`](workspace_host::NamespaceHolder)). A server that runs
//! as root mounts in the machine's own namespaces.
//!
//! `layers.rs` has the layers and the stacks they form, `delta.rs` a layer with the differences of two trees,
//! `upper.rs` reads changes from an overlay's upper directory, `lazy.rs` is the lazy mount that replaces
//! layers that are not written yet. These need overlays, and so Linux; on macOS there are clone and copy.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only overlays need all of it"))]

mod base;
mod copy;
mod current_holder;
mod error;
mod layers;
mod lazy_command;
mod provider;
mod provider_kind;
mod record;
mod selection;
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
mod unsupported;
#[cfg(not(target_os = "linux"))]
use unsupported::{access, delta, overlay};

pub use base::{Base, Materialize};
pub use error::{Result, WorkspaceError, is_disk_full_message};
pub use layers::{LayerGcResult, UnusedLayers};
pub use lazy_command::LazyCommand;
pub use provider::{CommitResult, LowerLayers, Provider, WorkspaceContent, WorkspaceDir};
pub use provider_kind::ProviderKind;
pub use record::{Generation, Phase, Record};
pub use selection::{ProviderPreference, ProviderSelection};
pub use workspaces::{
    Bounds, Cancellable, Changes, NewWorkspace, Options, PreparedReset, ResetResult, Usage, WorkspaceEntry,
    WorkspaceInfo, Workspaces,
};
