//! Fuzz target for merges of YAML.

#![no_main]

workspace_fuzz::fuzz_merge!("a.yaml");
