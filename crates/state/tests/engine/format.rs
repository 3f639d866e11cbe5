//! Tests of stored formats: data that was written once must stay readable, and decoding hostile data must be safe.
//!
//! `tests/corpus` has a directory per format. Its files were written by the version that froze the format, or found by
//! a fuzz target. All of them are decoded here. `WORKSPACE_TEST_WRITE_CORPUS=1` writes the samples of a new format.

use std::fs;
use std::path::PathBuf;

use workspace_state::testing::{FORMATS, Reencode, samples};

use crate::support::{Random, is_full_run, noise};

/// Returns the directory of a format.
fn corpus(format: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(format)
}

/// Returns the files of a format with their content.
fn files(format: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(corpus(format))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Decodes bytes. Asserts that a decoded value has the same encoding again. Returns false if the bytes are refused.
#[track_caller]
fn assert_canonical(format: &str, reencode: Reencode, bytes: &[u8]) -> bool {
    match reencode(bytes) {
        Some(again) => {
            assert_eq!(again, bytes, "two encodings of one {format}");
            true
        }
        None => false,
    }
}

#[test]
fn stored_formats_are_frozen() {
    for (format, reencode) in FORMATS {
        for (number, sample) in samples(format).into_iter().enumerate() {
            let path = corpus(format).join(format!("sample-{number}"));
            if std::env::var_os("WORKSPACE_TEST_WRITE_CORPUS").is_some() {
                fs::create_dir_all(corpus(format)).unwrap();
                fs::write(&path, &sample).unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), sample, "{} is written in another way", path.display());
            assert!(assert_canonical(format, *reencode, &sample), "{} does not decode", path.display());
        }
    }
}

#[test]
fn all_files_of_the_corpus_are_decoded_or_refused() {
    for (format, reencode) in FORMATS {
        assert!(files(format).len() > 1, "nothing to replay for {format}");
        for (_, bytes) in files(format) {
            assert_canonical(format, *reencode, &bytes);
        }
    }
    // Every directory belongs to a format.
    let mut directories: Vec<String> = fs::read_dir(corpus(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    directories.sort();
    let mut formats: Vec<&str> = FORMATS.iter().map(|(format, _)| *format).collect();
    formats.sort_unstable();
    assert_eq!(directories, formats);
}

#[test]
fn decoding_truncated_or_changed_bytes_never_panics() {
    let mut random = Random::new();
    for (format, reencode) in FORMATS {
        for (_, bytes) in files(format) {
            for len in 0..bytes.len() {
                assert_canonical(format, *reencode, &bytes[..len]);
            }
            for index in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[index] ^= 1 << random.below(8);
                assert_canonical(format, *reencode, &changed);
                changed[index] = 0xff;
                assert_canonical(format, *reencode, &changed);
                changed.insert(index, random.next() as u8);
                assert_canonical(format, *reencode, &changed);
            }
        }
        for seed in 0..if is_full_run() { 100_000 } else { 500 } {
            let len = random.below(300) as usize;
            assert_canonical(format, *reencode, &noise(seed, len));
        }
    }
}
