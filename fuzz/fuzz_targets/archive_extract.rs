#![no_main]

use workspace_fuzz::libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| workspace_fuzz::extract(bytes));
