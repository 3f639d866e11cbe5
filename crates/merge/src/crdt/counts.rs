//! Totals of counters.
//!
//! A counter is the sum of what each side added to it. Every side adds members of its own to one map of the document: equal
//! changes of two sides are two members, and if two sides create a counter, its total is the sum of both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use automerge::transaction::Transactable;
use automerge::{AutoCommit, AutomergeError, ObjId, ObjType, ROOT, ReadDoc, Value};

/// The member of the root that holds what was added, by counter and side.
const COUNTS: &str = "counts";

/// A side that changed counters: a hash in hexadecimal. All have the same length.
pub(super) type Side = String;

/// What a document holds of counters.
#[derive(Debug)]
pub(super) struct Counts {
    map: ObjId,
    /// By name of the counter; none for one that is out of range.
    totals: HashMap<String, Option<i128>>,
    sides: BTreeSet<Side>,
    members: Vec<String>,
}

impl Counts {
    /// None if the document has none, or not as they are written here.
    pub(super) fn read(document: &AutoCommit) -> Option<Self> {
        let Some((Value::Object(ObjType::Map), map)) = document.get(ROOT, COUNTS).ok()? else { return None };
        let (mut totals, mut sides, mut members) = (HashMap::new(), BTreeSet::new(), Vec::new());
        for item in document.map_range(&map, ..) {
            let (name, side) = split(&item.key)?;
            let Value::Scalar(added) = item.value.into_value() else { return None };
            let added: i128 = added.as_str()?.parse().ok()?;
            let total: &mut Option<i128> = totals.entry(name.to_owned()).or_insert(Some(0));
            *total = total.and_then(|total| total.checked_add(added));
            if !sides.contains(side) {
                sides.insert(side.to_owned());
            }
            members.push(item.key.to_string());
        }
        Some(Self { map, totals, sides, members })
    }

    /// As [`Counts::read`], in a document that may have none yet.
    pub(super) fn of(document: &mut AutoCommit) -> Result<Self, AutomergeError> {
        if let Some(counts) = Self::read(document) {
            return Ok(counts);
        }
        let map = document.put_object(ROOT, COUNTS, ObjType::Map)?;
        Ok(Self { map, totals: HashMap::new(), sides: BTreeSet::new(), members: Vec::new() })
    }

    /// Sides that have added to a counter.
    pub(super) fn sides(&self) -> &BTreeSet<Side> {
        &self.sides
    }

    /// None if it is out of range.
    pub(super) fn total(&self, name: &str) -> Option<i128> {
        self.totals.get(name).copied().unwrap_or(Some(0))
    }

    /// Removes what was added to counters that are no longer there: one that is created again begins at 0.
    pub(super) fn retain(
        &self,
        document: &mut AutoCommit,
        wanted: &BTreeMap<String, i128>,
    ) -> Result<(), AutomergeError> {
        let is_gone = |member: &&String| split(member).is_none_or(|(name, _)| !wanted.contains_key(name));
        self.members.iter().filter(is_gone).try_for_each(|member| document.delete(&self.map, member.as_str()))
    }

    /// Adds the differences to the values that counters should have, in the name of a side.
    pub(super) fn add(
        &self,
        document: &mut AutoCommit,
        wanted: &BTreeMap<String, i128>,
        side: &str,
    ) -> Result<(), AutomergeError> {
        for (name, value) in wanted {
            // Values are so small that their difference is in range; totals that are not have no value to begin with.
            let added = value.saturating_sub(self.total(name).unwrap_or(0));
            if added != 0 {
                document.put(&self.map, format!("{name}{side}"), added.to_string())?;
            }
        }
        Ok(())
    }
}

/// Length of the name of a side.
pub(super) const SIDE: usize = 32;

/// The counter and the side of a member.
fn split(member: &str) -> Option<(&str, &str)> {
    member.split_at_checked(member.len().checked_sub(SIDE)?)
}
