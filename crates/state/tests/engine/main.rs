//! Tests of the engine as its users see it, on real stores and directories.

mod directory;
mod support;
mod virtual_tree;
