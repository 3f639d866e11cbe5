//! Report about a completion (finished work of an agent that was merged into its project): refused changes, renamed
//! additions, conflicts, and files that were merged.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use workspace_merge::TreeConflict;
use workspace_state::quote_path;

use super::completion_merge::MergeOutcome;
use crate::check::Change;

/// Report about the changes of a completion, in its stored form. Paths are quoted, as by [`quote_path`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompletionReport {
    /// Changes that the policy refused.
    pub refused: Vec<RefusedChange>,
    /// Additions that got another name.
    pub renamed: Vec<RenamedAddition>,
    /// Conflicts that wait for a review.
    pub conflicts: Vec<Conflict>,
    /// Files that a merge strategy combined.
    pub merged: Vec<MergedFile>,
}

/// Change that the policy refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedChange {
    /// Path of the change.
    pub path: String,
    /// Kind of the change: `addition`, `change`, `deletion` or `replacement`.
    pub change: String,
    /// Sentence about the refusal, for a person.
    pub reason: String,
}

/// Addition that was kept under another name, because the head has an entry of its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenamedAddition {
    /// Path under which the agent added it.
    pub from: String,
    /// Path under which it was kept.
    pub to: String,
}

/// Conflict between the changes of a completion and the head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Path of the conflict.
    pub path: String,
    /// Kind of the conflict, such as `content`.
    pub class: String,
}

/// File that a merge strategy combined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedFile {
    /// Path of the file.
    pub path: String,
    /// Name of the strategy.
    pub strategy: String,
}

impl RefusedChange {
    /// Returns true if the agent had an entry at the path after the change.
    pub fn has_content(&self) -> bool {
        self.change != Change::Delete.to_string()
    }
}

impl Conflict {
    pub(super) fn of(conflict: &TreeConflict) -> Self {
        Self { path: quote_path(&conflict.path.0).into_owned(), class: conflict.class.name().to_owned() }
    }
}

impl MergedFile {
    pub(super) fn new(path: &[u8], strategy: &str) -> Self {
        Self { path: quote_path(path).into_owned(), strategy: strategy.to_owned() }
    }
}

impl CompletionReport {
    pub(super) fn of(outcome: &MergeOutcome) -> Self {
        let quoted = |path: &[u8]| quote_path(path).into_owned();
        let refused = outcome.refused.iter().map(|refused| RefusedChange {
            path: quoted(&refused.path.0),
            change: refused.change.to_string(),
            reason: refused.to_string(),
        });
        let renamed = outcome
            .renamed
            .iter()
            .map(|renamed| RenamedAddition { from: quoted(&renamed.from.0), to: quoted(&renamed.to.0) });
        let conflicts = outcome.conflicts.iter().map(Conflict::of);
        let merged = outcome.strategies.iter().map(|(path, strategy)| MergedFile::new(path, strategy));
        Self {
            refused: refused.collect(),
            renamed: renamed.collect(),
            conflicts: conflicts.collect(),
            merged: merged.collect(),
        }
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> Value {
        json!({ "refused": self.refused, "renamed": self.renamed, "conflicts": self.conflicts, "merged": self.merged })
    }
}
