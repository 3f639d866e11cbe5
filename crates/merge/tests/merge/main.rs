//! Tests of the merge crate.

mod bad_input;
mod comments;
mod crdt;
mod documents;
mod git;
mod json;
mod mangled;
mod model;
mod notebooks;
mod properties;
mod repository;
mod toml;
mod trees;
mod trees_git;
mod yaml;
