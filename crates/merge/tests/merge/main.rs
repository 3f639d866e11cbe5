//! What merges are held to.

mod crdt;
mod documents;
mod git;
mod json;
mod toml;
mod yaml;
