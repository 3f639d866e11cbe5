//! Merge rules of the command line.

use std::fs;
use std::path::Path;

use workspace_merge::{PathRule, Policy, Strategies};

use crate::args::{MergeRules, MergeSide};
use crate::error::{CommandError, Result, io_hint};

/// Reads the policy from a file of rules; an empty one if there is no file.
pub(super) fn read_policy(rules: &MergeRules) -> Result<Policy> {
    let Some(path) = &rules.policy else { return Ok(Policy::default()) };
    let text = fs::read(path).map_err(|error| {
        CommandError::failed(format!("cannot read {}: {error}", path.display())).hint(io_hint(&error))
    })?;
    read(&text).map_err(|reason| invalid_rules(path, &reason))
}

fn read(text: &[u8]) -> Result<Policy, String> {
    let rules: Vec<PathRule> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let policy = Policy::new(rules).map_err(|error| error.to_string())?;
    policy.check(&Strategies::default()).map_err(|error| error.to_string())?;
    Ok(policy)
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
