//! Interface of merge strategies: algorithms that merge the three versions of a file.

use crate::file::{Input, Outcome, Side};
use crate::file_settings::FileSettings;

/// Merge algorithm for files of one type.
pub trait Strategy: Send + Sync {
    /// Unique name of the strategy in [`FileSettings::strategy`] and in reported conflicts.
    fn name(&self) -> &'static str;

    /// Merges three versions. Returns a conflict if changes of both sides cannot be combined.
    fn merge(&self, input: &Input<'_>, settings: &FileSettings) -> Outcome;

    /// Merges three versions, and resolves all conflicts in favour of `side`. The default implementation returns the
    /// whole version of `side`.
    fn resolve(&self, input: &Input<'_>, settings: &FileSettings, side: Side) -> Vec<u8> {
        let _ = settings;
        input.versions.of(side).to_vec()
    }

    /// Returns the results of [`Strategy::resolve`] in favour of our and of their side. They differ only in the
    /// conflicts. `None` if the strategy merges lines.
    fn conflict_sides(&self, input: &Input<'_>, settings: &FileSettings) -> Option<[Vec<u8>; 2]> {
        let _ = (input, settings);
        None
    }

    /// Returns true if the strategy also runs for files that only one side changed, or to which both sides made the
    /// same change.
    fn is_always_run(&self) -> bool {
        false
    }

    /// Returns true if equal changes of both sides are both applied. For example, a log entry that both sides appended
    /// is then in the result twice. The strategy then also runs if both sides have the same content.
    fn applies_equal_changes_twice(&self, settings: &FileSettings) -> bool {
        let _ = settings;
        false
    }

    /// Returns true if every change by their side needs a review (a decision by a person).
    fn requires_review(&self) -> bool {
        false
    }
}
