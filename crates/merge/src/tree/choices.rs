//! Possible resolutions of conflicts in trees, for a person who decides.

use workspace_state::Tree;

use super::conflict::{ConflictClass, TreeConflict};
use super::leaf::TreeMerger;
use super::options::TreeOptions;
use super::result::Result;
use crate::choices::{Choice, ChoiceResult, by_conflict_rules, choices};

/// Lists the possible resolutions of a conflict: the result of each conflict rule, and of each merge strategy other
/// than the one that found the conflict. Empty unless the class of the conflict is `Content`, `AddAdd`,
/// `ReviewRequired`, `ModifyDelete` or `Symlink`.
pub fn tree_choices(
    conflict: &TreeConflict,
    base: &Tree,
    ours: &Tree,
    theirs: &Tree,
    options: &TreeOptions,
) -> Result<Vec<Choice>> {
    let merger = TreeMerger::new(options, base, ours, theirs);
    let versions = [&conflict.base, &conflict.ours, &conflict.theirs].map(Option::as_ref);
    let our_author = merger.author_of_ours(&conflict.path.0);
    let their_author = merger.author_of_theirs(&conflict.path.0);
    let whole_versions = || by_conflict_rules(&our_author, &their_author, ChoiceResult::Version);
    match conflict.class {
        ConflictClass::Content | ConflictClass::AddAdd | ConflictClass::ReviewRequired => {
            let Some(contents) = merger.read(versions)? else { return Ok(whole_versions()) };
            let name = String::from_utf8_lossy(&conflict.path.0);
            let settings = options.rules.settings(&conflict.path.0);
            let input = merger.input(&conflict.path.0, &name, &contents);
            Ok(choices(&options.strategies, &settings, &input)?)
        }
        ConflictClass::ModifyDelete | ConflictClass::Symlink => Ok(whole_versions()),
        _ => Ok(Vec::new()),
    }
}
