#![no_main]

use workspace_fuzz::libfuzzer_sys::fuzz_target;
use workspace_state::testing::{fix_checksums, read_archive};

fuzz_target!(|bytes: &[u8]| {
    let mut archive = bytes.to_vec();
    drop(read_archive(&archive));
    fix_checksums(&mut archive);
    drop(read_archive(&archive));
});
