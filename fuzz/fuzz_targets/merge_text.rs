//! Texts, merged.

#![no_main]

workspace_fuzz::fuzz_merge!("a.txt");
