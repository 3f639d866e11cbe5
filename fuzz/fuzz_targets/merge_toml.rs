//! Documents of TOML, merged.

#![no_main]

workspace_fuzz::fuzz_merge!("a.toml");
