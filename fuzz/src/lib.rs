//! Library of the fuzz targets.
//!
//! There is one target per stored format, which decodes its input, and one per file type, which merges three
//! versions. Two read archives and extract them into a directory. The others parse input from guests, clients
//! and servers, and settings ([`targets`]).
//!
//! Whatever decodes must encode to the same bytes again. Interesting inputs go to `crates/state/tests/corpus`
//! and `crates/merge/tests/corpus`, which the tests of these crates replay.

pub mod targets;

pub use libfuzzer_sys;
pub use workspace_state::testing::format;

/// Declares the target for a stored format.
#[macro_export]
macro_rules! fuzz_format {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            if let Some(again) = $crate::format($name)(bytes) {
                assert_eq!(again, bytes, "two encodings of one {}", $name);
            }
        });
    };
}

/// Declares the target for a file type, by an example path.
#[macro_export]
macro_rules! fuzz_merge {
    ($path:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::targets::merge($path, bytes));
    };
}

/// Declares the target for a function in [`targets`].
#[macro_export]
macro_rules! fuzz_input {
    ($target:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::targets::$target(bytes));
    };
}

/// Extracts an archive in each profile. Nothing outside of the directory may change.
pub fn extract(bytes: &[u8]) {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use workspace_state::{ArchiveLimits, Cancel, ExtractOptions, ExtractProfile, Extractor, MemberPaths};

    let mut archive = bytes.to_vec();
    workspace_state::testing::fix_checksums(&mut archive);
    let home = std::env::temp_dir().join(format!("workspace-fuzz-extract-{}", std::process::id()));
    let (outside, inside) = (home.join("outside"), home.join("inside"));
    let copy = |paths| ExtractProfile::Copy { name: b"copy".to_vec(), paths };
    for profile in [ExtractProfile::Layer, copy(MemberPaths::BelowName), copy(MemberPaths::Relative)] {
        // Left behind if the last process was killed.
        drop(fs::remove_dir_all(&home));
        fs::create_dir_all(&outside).expect("there is room");
        fs::create_dir(&inside).expect("there is room");
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let limits = ArchiveLimits { bytes: 1 << 20, entries: 1_000, metadata: 1 << 20 };
        let options = ExtractOptions { profile, limits, cancel: Cancel::new() };
        drop(Extractor::new(&inside, options).expect("it is there").extract(&mut &archive[..]));
        assert_eq!(fs::metadata(&outside).expect("it is there").permissions().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(&outside).expect("it is there").count(), 0, "something outside was written");
        assert_eq!(fs::read_dir(&home).expect("it is there").count(), 2, "something outside was written");
    }
    drop(fs::remove_dir_all(&home));
}
