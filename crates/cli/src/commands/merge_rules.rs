//! Merge rules of the command line.

use std::fs;
use std::path::Path;

use workspace_merge::{PathRule, PathRules, Strategies};

use crate::args::{MergeRules, MergeSide};
use crate::error::{CommandError, Result, io_hint};

/// Reads the rules from the file that the command line names; empty if it names none.
pub(super) fn read_rules(rules: &MergeRules) -> Result<PathRules> {
    let Some(path) = &rules.policy else { return Ok(PathRules::default()) };
    let text = fs::read(path).map_err(|error| {
        CommandError::failed(format!("cannot read {}: {error}", path.display())).hint(io_hint(&error))
    })?;
    read(&text).map_err(|reason| invalid_rules(path, &reason))
}

fn read(text: &[u8]) -> Result<PathRules, String> {
    let rules: Vec<PathRule> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let rules = PathRules::new(rules).map_err(|error| error.to_string())?;
    rules.check(&Strategies::default()).map_err(|error| error.to_string())?;
    Ok(rules)
}

fn invalid_rules(path: &Path, reason: &str) -> CommandError {
    CommandError::failed(format!("{} is not a list of rules: {reason}", path.display()))
        .hint(r#"a list of rules looks like [{"path": "**/*.png", "onConflict": "theirs"}]; docs/merge.md has all fields"#)
}

/// Returns the priorities of ours and theirs: 1 for the side that `--priority` names, else 0.
pub(super) fn priorities(rules: &MergeRules) -> (i64, i64) {
    let priority = |side| i64::from(rules.priority == Some(side));
    (priority(MergeSide::Ours), priority(MergeSide::Theirs))
}
