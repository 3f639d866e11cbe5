//! Protection against a merge driver that fails.
//!
//! After a conflict, git uses the content that the driver left in OURS. Git before 2.42 takes every status except 0 for
//! a conflict, also that of a driver that was killed; later versions abort the merge if the status is above 128. An
//! unchanged OURS would look merged. Therefore the whole file is first marked as a conflict, and then replaced by the
//! result.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use workspace_merge::ConflictMarkers;

use super::replace;
use crate::error::Result;

/// Prefix of the temporary files that git passes to a driver.
const TEMPORARY_PREFIX: &[u8] = b".merge_file_";

/// Returns true for a temporary file of git.
pub(super) fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(TEMPORARY_PREFIX))
}

/// Writes both versions into `path`, between conflict markers. Returns false if the content is not text.
pub(super) fn mark(path: &Path, ours: &[u8], theirs: &[u8], markers: &ConflictMarkers<'_>) -> Result<bool> {
    if ours.contains(&0) || theirs.contains(&0) {
        return Ok(false);
    }
    replace::write(path, &unmerged(ours, theirs, markers)).map(|()| true)
}

/// Writes conflict markers into OURS if git called this program with arguments that cannot be parsed. The versions are
/// then the first three consecutive arguments that are temporary files of git: OURS, the ancestor and THEIRS.
pub(crate) fn mark_unmerged_file(words: &[OsString]) {
    let is_versions = |words: &&[OsString]| words.iter().all(|word| is_temporary(Path::new(word)));
    let Some([ours, _, theirs]) = words.windows(3).find(is_versions) else { return };
    if let (Ok(content), Ok(other)) = (fs::read(ours), fs::read(theirs)) {
        // The usage error is reported in any case.
        let _ = mark(Path::new(ours), &content, &other, &ConflictMarkers::default());
    }
}

/// Returns both versions as one conflict.
fn unmerged(ours: &[u8], theirs: &[u8], markers: &ConflictMarkers<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let write_marker = |out: &mut Vec<u8>, sign: char, label: &str| {
        let line = format!("{} {label}", String::from(sign).repeat(markers.marker_size));
        out.extend_from_slice(line.trim_end().as_bytes());
        out.push(b'\n');
    };
    for (sign, label, content) in [('<', markers.ours, ours), ('=', "", theirs)] {
        write_marker(&mut out, sign, label);
        out.extend_from_slice(content);
        if !content.is_empty() && !content.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    write_marker(&mut out, '>', markers.theirs);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_between_markers() {
        let markers =
            ConflictMarkers { ours: "mine", theirs: "yours", marker_size: 3, ..ConflictMarkers::default() };
        assert_eq!(unmerged(b"a", b"b\n", &markers), b"<<< mine\na\n===\nb\n>>> yours\n");
        assert_eq!(unmerged(b"", b"", &markers), b"<<< mine\n===\n>>> yours\n");
    }

    #[test]
    fn only_files_of_git_are_marked() {
        assert!(is_temporary(Path::new(".merge_file_a1B2c3")));
        assert!(!is_temporary(Path::new("merge_file_a1B2c3.json")));
    }
}
