//! What merges are held to.

mod bad_input;
mod crdt;
mod documents;
mod git;
mod json;
mod mangled;
mod properties;
mod toml;
mod yaml;
mod model;
mod trees;
mod trees_git;
