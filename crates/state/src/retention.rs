//! Retention rules for snapshots.

use std::collections::HashSet;

use crate::error::Result;
use crate::snapshot::{Snapshot, Timestamp};
use crate::store::Store;

/// Rules for keeping snapshots. Without any rule, all snapshots are kept. Otherwise a snapshot is kept if a rule
/// applies to it, or if a reference (a name), a pin (of a mount or another user) or an episode (a step of a search)
/// refers to it.
#[derive(Debug, Clone, Default)]
pub struct Retention {
    /// Number of the newest snapshots to keep.
    pub keep_last: Option<usize>,
    /// Time from which on snapshots are kept.
    pub keep_since: Option<Timestamp>,
    /// True to keep snapshots that have a label.
    pub keep_labelled: bool,
}

/// Result of applying retention rules.
#[derive(Debug, Clone, Default)]
pub struct RetentionPlan {
    /// Snapshots to keep, oldest first.
    pub keep: Vec<Snapshot>,
    /// Snapshots to remove, oldest first.
    pub remove: Vec<Snapshot>,
}

impl Store {
    /// Computes which snapshots `rules` keep and remove now. Does not remove anything.
    pub fn retention_plan(&self, rules: &Retention) -> Result<RetentionPlan> {
        let mut snapshots = self.snapshots()?;
        snapshots.sort_by_key(|snapshot| (snapshot.time, snapshot.id));
        if rules.keep_last.is_none() && rules.keep_since.is_none() && !rules.keep_labelled {
            return Ok(RetentionPlan { keep: snapshots, remove: Vec::new() });
        }
        let mut in_use: HashSet<_> = self.references()?.into_iter().map(|(_, id)| id).collect();
        in_use.extend(self.pins()?.into_iter().map(|pin| pin.snapshot));
        in_use.extend(self.all_episodes()?.into_iter().map(|episode| episode.snapshot));
        // Position of the oldest snapshot that `keep_last` keeps.
        let first_of_newest = snapshots.len().saturating_sub(rules.keep_last.unwrap_or(0));
        let mut plan = RetentionPlan::default();
        for (position, snapshot) in snapshots.into_iter().enumerate() {
            let keep = position >= first_of_newest
                || rules.keep_since.is_some_and(|since| snapshot.time >= since)
                || (rules.keep_labelled && !snapshot.labels.is_empty())
                || in_use.contains(&snapshot.id);
            if keep { plan.keep.push(snapshot) } else { plan.remove.push(snapshot) }
        }
        Ok(plan)
    }
}
