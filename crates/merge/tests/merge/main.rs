//! What merges are held to.

mod documents;
mod git;
mod json;
mod toml;
mod yaml;
