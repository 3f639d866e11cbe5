//! Documents of a CRDT, merged.

#![no_main]

workspace_fuzz::fuzz_merge!("a.crdt.json");
