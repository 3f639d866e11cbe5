//! Helpers that merge three versions of a file with the default strategies. A path selects the strategy by its
//! extension.

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

/// Merges texts with the default settings.
pub(crate) fn merged(path: &str, base: Option<&str>, ours: &str, theirs: &str) -> FileMerge {
    merged_by(&FileSettings::default(), path, base, ours, theirs)
}

/// Merges texts, and returns the merged text. Without `base`, both sides added the file. Fails on a conflict.
pub(crate) fn clean(path: &str, base: Option<&str>, ours: &str, theirs: &str) -> String {
    let merged = merged(path, base, ours, theirs);
    assert_eq!(merged.conflict, None);
    String::from_utf8(merged.merged.content).unwrap()
}

/// Merges texts, and returns the paths of the conflicting values. Fails if there is no conflict, or lines conflict.
pub(crate) fn conflicts(path: &str, base: Option<&str>, ours: &str, theirs: &str) -> Vec<String> {
    let conflict = merged(path, base, ours, theirs).conflict.expect("a conflict");
    let path = |location: ConflictLocation| match location {
        ConflictLocation::Value(value) => value.path,
        ConflictLocation::Lines(_) => panic!("a conflict of lines"),
    };
    conflict.locations.into_iter().map(path).collect()
}
