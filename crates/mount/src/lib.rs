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
//! [`ViewOptions::owner`] names, set-id bits are dropped, a directory counts one link and a file with several
//! names counts two (how many there are is known only after a walk over the whole tree; such names do share
//! an inode number).
//!
//! Start reading at [`View`] for serving, [`spawn_daemon`] for the process that outlives whoever started
//! it, `device.rs` for how a mount is made with and without privilege, and `filesystem.rs` for what the
//! kernel asks.

mod chunks;
mod content;
mod daemon;
mod device;
mod error;
mod filesystem;
mod identity;
mod inode;
mod listing;
mod mountpoint;
mod report;
mod requests;
mod root;
mod serving;
mod table;
mod usage;
mod view;
mod xattrs;

pub use daemon::{daemon_main, spawn_daemon};
pub use error::MountError;
pub use mountpoint::{MountState, detach, mount_state, unmount};
pub use requests::Requests;
pub use view::{View, ViewOptions};
