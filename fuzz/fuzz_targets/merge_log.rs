//! Fuzz target for merges of logs.

#![no_main]

workspace_fuzz::fuzz_merge!("a.log");
