//! Fuzz target for merges of JSON.

#![no_main]

workspace_fuzz::fuzz_merge!("a.json");
