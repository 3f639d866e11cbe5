//! Fuzz target for merges of TOML.

#![no_main]

workspace_fuzz::fuzz_merge!("a.toml");
