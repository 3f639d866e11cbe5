//! Name collisions: different names that a file system treats as equal because it ignores case or Unicode
//! normalisation.
//!
//! If the sides added different names that collide, this is a conflict, and the result has both entries. Names that
//! the same side added are not compared.

use std::borrow::Cow;
use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;
use workspace_state::TreePath;

use super::changes::SideChanges;
use super::conflict::{ConflictClass, TreeConflict, TreeVersion};
use super::leaf::{ResultEntries, TreeMerger};
use super::paths::{contains_at_or_below, name, parent};

/// Reports each name that their side added, if our side added a different name in the same directory that is equal
/// after [`fold_name`]. If our side added several such names, only the first is reported.
pub(super) fn report(
    merger: &mut TreeMerger<'_>,
    result: &ResultEntries,
    ours: &SideChanges<'_>,
    theirs: &SideChanges<'_>,
) {
    let added_by_theirs = theirs.added();
    if added_by_theirs.is_empty() {
        return;
    }
    let added_by_ours = ours.added();
    let folded_path = |path| (parent(path).unwrap_or_default(), fold_name(name(path)));
    let mut our_paths_by_folded: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
    for path in added_by_ours.keys().filter(|path| is_in_result(result, ours, path)) {
        our_paths_by_folded.entry(folded_path(path)).or_default().push(path);
    }
    for (path, entry) in added_by_theirs {
        let mut our_paths = our_paths_by_folded.get(&folded_path(path)).into_iter().flatten();
        let Some(our_path) = our_paths.find(|our_path| **our_path != path).copied() else { continue };
        if !is_in_result(result, theirs, path) {
            continue;
        }
        merger.report(TreeConflict {
            ours: added_by_ours.get(our_path).map(|entry| TreeVersion::new(our_path, (*entry).clone())),
            theirs: Some(TreeVersion::new(path, entry.clone())),
            theirs_path_in_merged: Some(TreePath(path.to_vec())),
            ..TreeConflict::new(ConflictClass::Collision, our_path)
        });
    }
}

/// Returns true if the entry that was added at a path is in the result.
fn is_in_result(result: &ResultEntries, side: &SideChanges<'_>, path: &[u8]) -> bool {
    // `result` has the merged paths: such a path has a leaf (file or symlink) unless it was removed. Any other path
    // is in the merged tree if this side changed it, added a directory there or moved a directory there, or if
    // `result` has entries below it.
    match result.get(path) {
        Some(result_entry) => result_entry.leaf.is_some(),
        None => {
            side.leaves.contains_key(path)
                || side.has_added(path)
                || side.moves_into(path)
                || contains_at_or_below(result, path)
        }
    }
}

/// Applies case folding and Unicode normalisation to a name.
fn fold_name(name: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => {
            // Some characters, such as ß, are folded only if they are converted to upper case first.
            let text: String =
                text.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfc().collect();
            Cow::Owned(text.into_bytes())
        }
        _ if name.iter().any(u8::is_ascii_uppercase) => Cow::Owned(name.to_ascii_lowercase()),
        _ => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_ignores_case_and_normalisation() {
        let same = |a: &str, b: &str| fold_name(a.as_bytes()) == fold_name(b.as_bytes());
        assert!(same("stra\u{df}e", "STRASSE"));
        assert!(same("README", "readme") && same("\u{c9}t\u{e9}", "e\u{301}te\u{301}"));
        assert!(!same("a", "b") && !same("e", "\u{e9}"));
        assert_eq!(fold_name(b"\xffA").as_ref(), b"\xffa");
    }
}
