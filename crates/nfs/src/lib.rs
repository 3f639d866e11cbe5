//! NFS servers behind one interface, [`NfsProvider`]: [`NfsServer`] is embedded in this process, and [`SystemNfs`]
//! manages the exports of the NFS server of the kernel, which needs root.
//!
//! The embedded server speaks NFSv3 and MOUNT v3 on one TCP port. It needs no privileges. An [`NfsServer`] serves any
//! number of [`Export`]s: directories that clients may mount. The caller opens each directory and passes its file
//! descriptor, so the directory may be a mount in another mount namespace. Every operation starts at that descriptor
//! and opens one path component at a time. No path of the host is resolved.
//!
//! - File handles survive a restart of the server: a table for each export maps the ids in the handles to names.
//! - A [`Gate`] lets the owner of a directory exclude operations while it freezes or replaces the directory.
//! - A [`DiskLimit`] refuses writes when an export uses too much space.
//! - An [`Observer`] is told of operations, transferred bytes, mounts and refusals.
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
mod provider;
mod random;
mod rpcbind;
mod server;
mod settings;
mod state_dir;
mod system;
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
pub use provider::{NfsMode, NfsProvider, NfsServerInfo};
pub use server::NfsServer;
pub use settings::{Limits, Settings};
pub use system::{SystemNfs, SystemSettings};
