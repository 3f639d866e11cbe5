//! The embedded NFS server: NFSv3 and MOUNT v3 on one TCP port, for an ordinary user.
//!
//! An [`NfsServer`] serves any number of [`Export`]s. Each is the root descriptor of a directory that somebody
//! else has opened, so an export may be a mount of other namespaces. Every operation is made beneath that
//! descriptor, one component at a time; no path of the host is ever resolved.
//!
//! - File handles survive a restart of the server: a table for each export maps their ids to names.
//! - A [`Gate`] lets the owner of a directory exclude operations while it freezes or replaces the directory.
//! - A [`DiskLimit`] refuses writes, and an [`Observer`] sees operations, bytes, mounts and refusals.
//!
//! The crate uses blocking threads and no async runtime. Its design is in `docs/design/nfs.md`.

#![cfg(target_os = "linux")]

mod acting;
mod buffers;
mod clients;
mod connection;
mod dispatch;
mod error;
mod export;
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod hooks;
mod operation;
mod random;
mod rpcbind;
mod server;
mod settings;
mod state_dir;
mod table;
mod volume;
mod wire;

pub use clients::{ClientList, ParseClientListError};
pub use error::NfsError;
pub use export::{Access, Export, ExportSummary, Identity, MountSecret, NfsExportInfo};
pub use hooks::{
    Direction, DiskLimit, Gate, GateGuard, MountEvent, NoGate, NoLimit, NoObserver, Observer, Outcome,
    Refusal, RefusalReason,
};
pub use operation::Operation;
pub use server::{NfsMode, NfsServer, NfsServerInfo};
pub use settings::{Limits, Settings};
