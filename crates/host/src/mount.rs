//! Mounts: root filesystem and workspace of a sandbox, overlays, and access to files below them.

pub mod anchor;
pub(crate) mod attach;
pub(crate) mod idmap;
pub(crate) mod kept_root;
pub(crate) mod mounts;
pub(crate) mod open_at;
pub mod overlay;
pub mod privileged_files;
pub(crate) mod remove_tree;
pub(crate) mod root;
pub(crate) mod swap;
pub(crate) mod workspace;
