//! Merging one file.

use serde::Serialize;

use crate::conflict::Conflict;
use crate::file::{Author, Input, Merged, Outcome, Side};
use crate::policy::{FileRule, OnConflict};
use crate::strategy::{Strategies, Strategy, UnknownStrategy};

/// A file that was merged, or could not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMerge {
    /// What it holds now: ours, where there is a conflict that nobody has decided.
    pub merged: Merged,
    /// By which strategy; none where only one side changed it, or both did the same.
    pub strategy: Option<&'static str>,
    /// What could not be merged.
    pub conflict: Option<Conflict>,
    /// Who won, where a rule decided the conflict; the other version is the loser's.
    pub decided: Option<Decided>,
}

/// A conflict that a rule has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// Who won.
    pub winner: Side,
    /// By which rule.
    pub rule: OnConflict,
}

impl FileMerge {
    /// Whether nobody has to decide anything.
    pub fn is_settled(&self) -> bool {
        self.conflict.is_none() || self.decided.is_some()
    }
}

/// Merges three versions of a file.
pub fn merge_file(
    strategies: &Strategies,
    rule: &FileRule,
    input: &Input<'_>,
) -> Result<FileMerge, UnknownStrategy> {
    let strategy = strategies.choose(input, rule)?;
    if !strategy.is_always_asked()
        && let Some(content) = trivial(input, strategy.accumulates(rule))
    {
        return Ok(FileMerge { merged: Merged::new(content), strategy: None, conflict: None, decided: None });
    }
    Ok(match strategy.merge(input, rule) {
        Outcome::Merged(merged) => {
            FileMerge { merged, strategy: Some(strategy.name()), conflict: None, decided: None }
        }
        Outcome::Conflict(conflict) => decide(strategy.as_ref(), input, rule, conflict),
    })
}

/// Ours and theirs of a file in conflict with all that could be merged in both, so that they differ only where they are in
/// conflict ([`TextMerge::between`](crate::TextMerge::between)). None if lines tell that
/// ([`TextMerge::new`](crate::TextMerge::new)).
pub fn in_conflict(
    strategies: &Strategies,
    rule: &FileRule,
    input: &Input<'_>,
) -> Result<Option<[Vec<u8>; 2]>, UnknownStrategy> {
    Ok(strategies.choose(input, rule)?.in_conflict(input, rule))
}

/// The content where no strategy is needed to tell.
pub(crate) fn trivial<'a>(input: &Input<'a>, accumulates: bool) -> Option<&'a [u8]> {
    let versions = &input.versions;
    let are_equal = versions.ours == versions.theirs && !accumulates;
    if are_equal || versions.base == Some(versions.theirs) {
        Some(versions.ours)
    } else if versions.base == Some(versions.ours) {
        Some(versions.theirs)
    } else {
        None
    }
}

fn decide(strategy: &dyn Strategy, input: &Input<'_>, rule: &FileRule, conflict: Conflict) -> FileMerge {
    let winner = winner(&input.ours, &input.theirs, rule.on_conflict);
    let content = match winner {
        None => input.versions.ours.to_vec(),
        Some(side) => strategy.settle(input, rule, side),
    };
    FileMerge {
        merged: Merged::new(content),
        strategy: Some(strategy.name()),
        conflict: Some(conflict),
        decided: winner.map(|winner| Decided { winner, rule: rule.on_conflict }),
    }
}

/// Theirs comes later where nothing else tells.
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
