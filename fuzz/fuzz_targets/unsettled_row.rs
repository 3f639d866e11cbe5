#![no_main]

workspace_fuzz::fuzz_format!("unsettled_row");
