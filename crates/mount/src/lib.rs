//! The lazy view: any number of snapshots of a store, served read-only over one FUSE mount.
//!
//! ```text
//! <mountpoint>/<snapshot id>/…   the tree of a snapshot; appears when it is first used
//! <mountpoint>/<reference>       a symlink to the id the reference points to, and so is the unambiguous
//!                                start of an id; only references without `/` in their names
//! ```
//!
//! Everything below a snapshot is immutable, so the kernel may keep what it has been told for ever: names,
//! missing names, attributes, listings, symlinks and content. `open` and `opendir` are answered with
//! "not implemented", after which the kernel opens by itself. A second pass over files that fit into memory
//! does not reach this program at all.
//!
//! What a snapshot does not have, the view makes up: files belong to whoever mounted it or whom
//! [`ViewOptions::owner`] names, set-id bits are dropped unless [`ViewOptions::keep_set_id`] says otherwise,
//! a directory counts one link and a file with several names counts two (how many there are is known only
//! after a walk over the whole tree; such names do share an inode number).
//!
//! Start reading at [`View`] for serving, [`spawn_daemon`] for the process that outlives whoever started
//! it, `device.rs` for how a mount is made with and without privilege, and `filesystem.rs` for what the
//! kernel asks.
//!
//! On systems other than Linux there is no such view (`elsewhere.rs`).

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "what only Linux does fails here, too"))]
mod error;
mod options;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux asks"))]
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
mod listing;
#[cfg(target_os = "linux")]
mod mountpoint;
#[cfg(target_os = "linux")]
mod open_files;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod root;
#[cfg(target_os = "linux")]
mod serving;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod usage;
#[cfg(target_os = "linux")]
mod view;
#[cfg(target_os = "linux")]
mod xattrs;

#[cfg(not(target_os = "linux"))]
mod elsewhere;

pub use error::MountError;
pub use options::ViewOptions;
pub use requests::Requests;

#[cfg(target_os = "linux")]
pub use daemon::{daemon_main, spawn_daemon};
#[cfg(target_os = "linux")]
pub use mountpoint::{MountState, detach, mount_state, unmount};
#[cfg(target_os = "linux")]
pub use view::View;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{View, daemon_main, detach, spawn_daemon, unmount};
