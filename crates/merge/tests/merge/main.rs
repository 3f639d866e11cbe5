//! Integration tests of the crate `workspace_merge`: merges of files and trees. `documents` (merges of three texts) and
//! `model` (small trees as maps) are helpers.

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
