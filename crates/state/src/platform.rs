//! Platform differences: the same functions for each operating system.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
mod macos;
#[cfg(not(target_os = "linux"))]
use macos as system;

pub(crate) use system::{
    CLONES_ATTRIBUTES, DIRECTORY_HANDLE, Handle, NO_ATTRIBUTE, create_named, create_unnamed, link_unnamed,
    links_of, mode_bits, raw_mode, reflink, rename_into_place, reserve, start_writeback, sync_filesystem,
};
pub use system::{RawDir, boot_id, clone_file, open_beneath};
