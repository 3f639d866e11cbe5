//! Lazy mount: any number of snapshots of a store, served read-only by one FUSE file system. Content is
//! loaded on first read.
//!
//! ```text
//! <mountpoint>/<snapshot id>/…   the tree of a snapshot; listed at once, and pinned when it is first used
//! <mountpoint>/<reference>       a symlink to the snapshot id of a reference without `/` in its name
//! <mountpoint>/<prefix of an id> a symlink to the only snapshot id with this prefix; not listed. Other spellings
//!                                of an id, for example in upper case, are such symlinks, too
//! ```
//!
//! Everything below a snapshot is immutable, so the kernel may cache it forever: names, missing names,
//! attributes, listings, symlinks and content. `open` and `opendir` fail with `ENOSYS`, after which
//! the kernel opens files without a request. A second read of files that fit into memory sends no request.
//!
//! Attributes that a snapshot does not have are synthesised: the user who mounted it, or
//! [`MountOptions::owner`], owns all files, a directory has one link and a hard-linked file has two (the real number
//! is known only after a walk over the whole tree; such names do share an inode number). Set-id bits of a snapshot are
//! hidden unless [`MountOptions::show_set_id_bits`] is set; they have no effect in either case, because the mount is
//! `nosuid`.
//!
//! See [`LazyMount`] for serving, [`spawn_daemon`] for the daemon process, `device.rs` for mounting with and
//! without privileges, `filesystem.rs` for the requests of the kernel, and `responses.rs` for the responses.
//!
//! On systems other than Linux there is no such mount (`unsupported.rs`).

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "on other systems, most errors never occur"))]
mod error;
mod options;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "on other systems, there are no requests"))]
mod requests;

#[cfg(target_os = "linux")]
mod chunks;
#[cfg(target_os = "linux")]
mod content;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
mod filesystem;
#[cfg(target_os = "linux")]
mod identity;
#[cfg(target_os = "linux")]
mod inode;
#[cfg(target_os = "linux")]
mod lazy_mount;
#[cfg(target_os = "linux")]
mod listing;
#[cfg(target_os = "linux")]
mod mountpoint;
#[cfg(target_os = "linux")]
mod open_files;
#[cfg(target_os = "linux")]
mod pinned_snapshot;
#[cfg(target_os = "linux")]
mod read_ahead;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod responses;
#[cfg(target_os = "linux")]
mod root;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod xattrs;

#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use error::MountError;
pub use options::MountOptions;
pub use requests::RequestCounter;

#[cfg(target_os = "linux")]
pub use daemon::{daemon_main, spawn_daemon};
#[cfg(target_os = "linux")]
pub use lazy_mount::LazyMount;
#[cfg(target_os = "linux")]
pub use mountpoint::{MountState, detach, mount_state, unmount};

#[cfg(not(target_os = "linux"))]
pub use unsupported::{LazyMount, daemon_main, detach, spawn_daemon, unmount};
