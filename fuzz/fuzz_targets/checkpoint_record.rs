#![no_main]

workspace_fuzz::fuzz_format!("checkpoint_record");
