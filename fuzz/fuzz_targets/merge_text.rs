//! Fuzz target for merges of text.

#![no_main]

workspace_fuzz::fuzz_merge!("a.txt");
