//! Workspaces: a writable directory per agent, created from a snapshot (a recorded directory tree in the store).
//!
//! [`Workspaces`] creates workspaces, computes their changes since that snapshot, commits their content as new
//! snapshots, and removes them. Its state is on disk, so that another process can take over. A [`Provider`] makes the
//! directory of a workspace. There are three:
//!
//! - **overlay**: the kernel's overlay file system, over read-only *layers* that all workspaces share. Only changed
//!   files take disk space.
//! - **clone**: every file is a reflink of a file in a layer.
//! - **copy**: every file is written. Works on every file system.
//!
//! An unprivileged user may mount only in a user namespace. Overlays are therefore mounted in the namespaces
//! of a *namespace holder*, a separate process ([`NamespaceHolder`](workspace_host::NamespaceHolder)). A
//! server that runs as root mounts in the initial namespaces. Overlays need Linux; macOS has clone and copy.
//!
//! `workspaces.rs` has the operations. `layers.rs` manages layers and stacks of them. `delta.rs` writes the
//! differences between two trees as a layer. `upper.rs` reads changes from an overlay's upper directory. `lazy.rs`
//! provides the lazy mount, a FUSE mount of a snapshot that is used until its layers are written. `anchors.rs` has the
//! mounts that show the present files of a project in read-only workspaces. A [`Workspaces`] value holds one *part* of
//! snapshots (`part.rs`): the files of workspaces, or root filesystems of sandboxes.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "used only by overlays, which need Linux"))]

mod anchor_to_follow;
mod base;
mod cancellable_lock;
mod conditional_commit;
mod copy;
mod current_holder;
mod error;
mod layers;
mod lazy_command;
mod part;
mod provider;
mod provider_kind;
mod record;
mod selection;
mod special;
mod workspaces;
mod writers;

#[cfg(target_os = "linux")]
mod anchors;
#[cfg(target_os = "linux")]
mod delta;
#[cfg(target_os = "linux")]
mod file_opener;
#[cfg(target_os = "linux")]
mod fingerprint_index;
#[cfg(target_os = "linux")]
mod lazy;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod upper;

#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
use unsupported::{anchors, delta, file_opener, overlay};

use workspace_failpoint as failpoint;

pub use anchor_to_follow::AnchorToFollow;
pub use anchors::ShownHead;
pub use base::{Base, Materialize};
pub use conditional_commit::ConditionalCommit;
pub use error::{Result, WorkspaceError, is_disk_full_message};
pub use layers::{LayerGcResult, UnusedLayers};
pub use lazy_command::LazyCommand;
pub use part::SnapshotPart;
pub use provider::{
    ChangeDigest, CommitResult, LowerLayers, Provider, ReliableFingerprints, ResetInPlaceError,
    UncommittedContent, WorkspaceContent, WorkspaceDir,
};
pub use provider_kind::ProviderKind;
pub use record::{Generation, Phase, Record};
pub use selection::{ProviderPreference, ProviderSelection};
pub use workspaces::{
    Bounds, CancellableWorkspaces, Changes, DiskUsage, KeptContent, MoveStart, MoveTarget, NewWorkspace,
    Options, PreparedReset, ResetMode, ResetResult, RootImport, WorkspaceEntry, WorkspaceInfo, Workspaces,
};
pub use writers::Writers;
