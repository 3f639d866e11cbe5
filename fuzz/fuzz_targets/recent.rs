#![no_main]

workspace_fuzz::fuzz_format!("recent");
