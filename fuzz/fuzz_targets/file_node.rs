#![no_main]

workspace_fuzz::fuzz_format!("file_node");
