//! Helpers for tests of documents.

use workspace_merge::{ConflictLocation, FileMerge, FileSettings, Input, Strategies, Versions, merge_file};

/// Merges bytes with the given settings.
pub(crate) fn merged_bytes(
    settings: &FileSettings,
    path: &str,
    base: Option<&[u8]>,
    ours: &[u8],
    theirs: &[u8],
) -> FileMerge {
    merge_file(&Strategies::default(), settings, &Input::new(path, Versions { base, ours, theirs })).unwrap()
}

/// Merges texts with the given settings.
pub(crate) fn merged_by(
    settings: &FileSettings,
    path: &str,
    base: Option<&str>,
    ours: &str,
    theirs: &str,
) -> FileMerge {
    merged_bytes(settings, path, base.map(str::as_bytes), ours.as_bytes(), theirs.as_bytes())
}

/// Merges texts.
pub(crate) fn merged(path: &str, base: Option<&str>, ours: &str, theirs: &str) -> FileMerge {
    merged_by(&FileSettings::default(), path, base, ours, theirs)
}

/// Merges texts, and fails on a conflict.
pub(crate) fn clean(path: &str, base: Option<&str>, ours: &str, theirs: &str) -> String {
    let merged = merged(path, base, ours, theirs);
    assert_eq!(merged.conflict, None);
    String::from_utf8(merged.merged.content).unwrap()
}

/// Returns the paths of conflicting values.
pub(crate) fn conflicts(path: &str, base: Option<&str>, ours: &str, theirs: &str) -> Vec<String> {
    let conflict = merged(path, base, ours, theirs).conflict.expect("a conflict");
    let path = |place: ConflictLocation| match place {
        ConflictLocation::Value(value) => value.path,
        ConflictLocation::Lines(_) => panic!("a conflict of lines"),
    };
    conflict.locations.into_iter().map(path).collect()
}
