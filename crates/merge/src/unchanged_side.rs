//! Merges that need no strategy: at most one side changed the file, or both sides have the same content.

use crate::file::Input;

/// Returns the merged content if one side changed nothing, or both sides are equal; `None` if a strategy must merge
/// the file. With `applies_equal_changes_twice`, equal sides that differ from the base must be merged by the strategy.
pub(crate) fn content_without_strategy<'a>(
    input: &Input<'a>,
    applies_equal_changes_twice: bool,
) -> Option<&'a [u8]> {
    let versions = &input.versions;
    let are_equal = versions.ours == versions.theirs && !applies_equal_changes_twice;
    if are_equal || versions.base == Some(versions.theirs) {
        Some(versions.ours)
    } else if versions.base == Some(versions.ours) {
        Some(versions.theirs)
    } else {
        None
    }
}
