//! What the fuzz targets share: one per stored format, each decoding what it is given, and one per kind of file,
//! each merging three versions that it is given. Two read archives, and write them into a directory. The others read what comes from a
//! guest, a client or a server, and settings ([`targets`]).
//!
//! What decodes must encode to the same bytes again. Inputs worth keeping go to `crates/state/tests/corpus` and
//! `crates/merge/tests/corpus`, which the tests of these crates replay.

pub mod targets;

pub use libfuzzer_sys;
pub use workspace_state::testing::format;

/// The target for the format of this name.
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

/// The target for files of this name.
#[macro_export]
macro_rules! fuzz_merge {
    ($path:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::targets::merge($path, bytes));
    };
}

/// The target of this name in [`targets`].
#[macro_export]
macro_rules! fuzz_input {
    ($target:ident) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::targets::$target(bytes));
    };
}

/// Extracts an archive in each way. Nothing beside the directory may change.
pub fn extract(bytes: &[u8]) {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use workspace_state::{ArchiveLimits, Cancel, ExtractOptions, ExtractProfile, Extractor};

    let mut archive = bytes.to_vec();
    workspace_state::testing::fix_checksums(&mut archive);
    let home = std::env::temp_dir().join(format!("workspace-fuzz-extract-{}", std::process::id()));
    let (outside, inside) = (home.join("outside"), home.join("inside"));
    for profile in [ExtractProfile::Layer, ExtractProfile::Copy { name: b"copy".to_vec() }] {
        // What the last input left, if it was the last that this process lived for.
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
