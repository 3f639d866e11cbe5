//! Fuzz target for merges of CRDT documents.

#![no_main]

workspace_fuzz::fuzz_merge!("a.crdt.json");
