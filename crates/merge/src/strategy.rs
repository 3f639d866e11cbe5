//! The interface of merge strategies.

use crate::file::{Input, Outcome, Side};
use crate::rule::FileRule;

/// Merge algorithm for files of one type.
pub trait Strategy: Send + Sync {
    /// Name of the strategy in policies and reports.
    fn name(&self) -> &'static str;

    /// Merges three versions.
    fn merge(&self, input: &Input<'_>, rule: &FileRule) -> Outcome;

    /// Returns the content with all conflicts resolved in favour of `side`; everything else is merged.
    fn settle(&self, input: &Input<'_>, rule: &FileRule, side: Side) -> Vec<u8> {
        let _ = rule;
        input.versions.of(side).to_vec()
    }

    /// Returns both sides with everything merged but the conflicts, so that they differ only there. `None` if
    /// the strategy works on lines.
    fn conflict_sides(&self, input: &Input<'_>, rule: &FileRule) -> Option<[Vec<u8>; 2]> {
        let _ = (input, rule);
        None
    }

    /// Returns whether the strategy runs even if only one side changed the file, or both made the same
    /// change.
    fn is_always_run(&self) -> bool {
        false
    }

    /// Returns whether changes of both sides add up even if they are equal, as entries of a log do. The
    /// strategy then also runs if both sides have the same content.
    fn is_cumulative(&self, rule: &FileRule) -> bool {
        let _ = rule;
        false
    }

    /// Returns whether every change by theirs needs a review.
    fn requires_review(&self) -> bool {
        false
    }
}
