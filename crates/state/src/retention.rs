//! Retention: which snapshots to keep.

use std::collections::HashSet;

use crate::error::Result;
use crate::snapshot::{Snapshot, Timestamp};
use crate::store::Store;

/// Rules for keeping snapshots. A snapshot is kept if any rule, a reference or a pin wants it; without any
/// rule, all are kept.
#[derive(Debug, Clone, Default)]
pub struct Retention {
    /// Keep the newest so many.
    pub keep_last: Option<usize>,
    /// Keep those made at or after this time.
    pub keep_since: Option<Timestamp>,
    /// Keep those with a label.
    pub keep_labelled: bool,
}

/// What rules would keep and remove.
#[derive(Debug, Clone, Default)]
pub struct RetentionPlan {
    /// Kept, oldest first.
    pub keep: Vec<Snapshot>,
    /// Not kept, oldest first.
    pub remove: Vec<Snapshot>,
}

impl Store {
    /// What `rules` keep and remove now. Nothing is removed by this.
    pub fn retention_plan(&self, rules: &Retention) -> Result<RetentionPlan> {
        let mut snapshots = self.snapshots()?;
        snapshots.sort_by_key(|snapshot| (snapshot.time, snapshot.id));
        if rules.keep_last.is_none() && rules.keep_since.is_none() && !rules.keep_labelled {
            return Ok(RetentionPlan { keep: snapshots, remove: Vec::new() });
        }
        let mut wanted: HashSet<_> = self.references()?.into_iter().map(|(_, id)| id).collect();
        wanted.extend(self.pins()?.into_iter().map(|pin| pin.snapshot));
        wanted.extend(self.episode_subtree(None)?.into_iter().map(|episode| episode.snapshot));
        let last = snapshots.len().saturating_sub(rules.keep_last.unwrap_or(0));
        let mut plan = RetentionPlan::default();
        for (position, snapshot) in snapshots.into_iter().enumerate() {
            let keep = position >= last
                || rules.keep_since.is_some_and(|since| snapshot.time >= since)
                || (rules.keep_labelled && !snapshot.labels.is_empty())
                || wanted.contains(&snapshot.id);
            if keep { plan.keep.push(snapshot) } else { plan.remove.push(snapshot) }
        }
        Ok(plan)
    }
}
