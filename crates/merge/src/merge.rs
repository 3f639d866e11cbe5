//! Merge of a single file: chooses a strategy (the merge algorithm for a type of files), runs it, and resolves
//! conflicts by the conflict rule of the settings ([`OnConflict`]).

use serde::Serialize;

use crate::conflict::Conflict;
use crate::file::{Author, Input, MergedContent, Outcome, Side};
use crate::file_settings::{FileSettings, OnConflict};
use crate::registry::{Strategies, UnknownStrategy};
use crate::strategy::Strategy;
use crate::unchanged_side::content_without_strategy;

/// Result of merging one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMerge {
    /// Merged content. Equal to our content if there is a conflict that needs a review (a decision by a person).
    pub merged: MergedContent,
    /// Name of the strategy that ran; `None` if none had to run, because only one side changed the file or both made
    /// the same change.
    pub strategy: Option<&'static str>,
    /// Conflict between the changes, also if the conflict rule resolved it; `None` if there was none.
    pub conflict: Option<Conflict>,
    /// Decision of the conflict rule; `None` if there is no conflict, or it needs a review.
    pub decided: Option<Decision>,
}

/// Decision of a conflict rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Side whose changes were taken.
    pub winner: Side,
    /// Conflict rule that decided.
    pub rule: OnConflict,
}

impl FileMerge {
    /// Returns true if there is no conflict, or the conflict rule resolved it.
    pub fn is_resolved(&self) -> bool {
        self.conflict.is_none() || self.decided.is_some()
    }
}

/// Merges three versions of a file.
///
/// Fails only if the settings name an unknown strategy. A conflict is not an error, but part of the result.
pub fn merge_file(
    strategies: &Strategies,
    settings: &FileSettings,
    input: &Input<'_>,
) -> Result<FileMerge, UnknownStrategy> {
    let strategy = strategies.choose(input, settings)?;
    if !strategy.is_always_run()
        && let Some(content) = content_without_strategy(input, strategy.applies_equal_changes_twice(settings))
    {
        return Ok(FileMerge {
            merged: MergedContent::new(content),
            strategy: None,
            conflict: None,
            decided: None,
        });
    }
    Ok(match strategy.merge(input, settings) {
        Outcome::Merged(merged) => {
            FileMerge { merged, strategy: Some(strategy.name()), conflict: None, decided: None }
        }
        Outcome::Conflict(conflict) => decide(strategy.as_ref(), input, settings, conflict),
    })
}

/// Returns two contents of a conflicting file: all conflicts resolved in favour of our side, and in favour of their
/// side. Both have all other changes, so they differ only in the conflicts. Compare them with
/// [`TextMerge::between`](crate::TextMerge::between).
///
/// `None` if the strategy works on lines. Use [`TextMerge::new`](crate::TextMerge::new) then to find the conflicts.
pub fn conflict_sides(
    strategies: &Strategies,
    settings: &FileSettings,
    input: &Input<'_>,
) -> Result<Option<[Vec<u8>; 2]>, UnknownStrategy> {
    Ok(strategies.choose(input, settings)?.conflict_sides(input, settings))
}

/// Resolves a conflict by the conflict rule of the settings. The rule `review` resolves nothing and keeps our content.
fn decide(
    strategy: &dyn Strategy,
    input: &Input<'_>,
    settings: &FileSettings,
    conflict: Conflict,
) -> FileMerge {
    let winner = winner(&input.our_author, &input.their_author, settings.on_conflict);
    let content = match winner {
        None => input.versions.ours.to_vec(),
        Some(side) => strategy.resolve(input, settings, side),
    };
    FileMerge {
        merged: MergedContent::new(content),
        strategy: Some(strategy.name()),
        conflict: Some(conflict),
        decided: winner.map(|winner| Decision { winner, rule: settings.on_conflict }),
    }
}

/// Returns the side that a conflict rule prefers; `None` if the rule requires a review. If times or priorities are
/// equal, their side wins, since it is merged later.
pub(crate) fn winner(ours: &Author, theirs: &Author, rule: OnConflict) -> Option<Side> {
    let is_ours = match rule {
        OnConflict::Review => return None,
        OnConflict::Ours => true,
        OnConflict::Theirs => false,
        OnConflict::Lww => ours.time > theirs.time,
        OnConflict::Priority => (ours.priority, ours.time) > (theirs.priority, theirs.time),
    };
    Some(if is_ours { Side::Ours } else { Side::Theirs })
}
