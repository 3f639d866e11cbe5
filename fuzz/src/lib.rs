//! What the fuzz targets share: one per stored format, each decoding what it is given.
//!
//! What decodes must encode to the same bytes again. Inputs worth keeping go to `crates/state/tests/corpus`,
//! which the engine's tests replay.

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
