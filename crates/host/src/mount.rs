//! Mounts: root filesystem and workspace of a sandbox, overlays, and access to files below them.

pub mod anchor;
pub(crate) mod attach;
pub(crate) mod idmap;
pub(crate) mod kept_root;
pub(crate) mod mounts;
pub mod open_as_holder;
pub(crate) mod open_at;
pub mod overlay;
pub(crate) mod remove_tree;
pub(crate) mod root;
pub(crate) mod swap;
pub(crate) mod workspace;
