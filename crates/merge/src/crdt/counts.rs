//! Totals of counters.
//!
//! A counter is the sum of the increments of all sides. Each side adds members of its own to one map of the
//! document: equal increments by two sides are two members, and a counter that two sides create is the sum of
//! both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use automerge::transaction::Transactable;
use automerge::{AutoCommit, AutomergeError, ObjId, ObjType, ROOT, ReadDoc, Value};

/// Key in the root map of the increments, by counter and side.
const COUNTS_KEY: &str = "counts";

/// Id of a side that changed counters: a hash in hexadecimal of [`SIDE_LEN`] characters.
pub(super) type Side = String;

/// Counters of a document.
#[derive(Debug)]
pub(super) struct Counts {
    map: ObjId,
    /// Totals by name of the counter; `None` on overflow.
    totals: HashMap<String, Option<i128>>,
    sides: BTreeSet<Side>,
    members: Vec<String>,
}

impl Counts {
    /// Reads the counters; `None` if the document has none, or in an unknown format.
    pub(super) fn read(document: &AutoCommit) -> Option<Self> {
        let Some((Value::Object(ObjType::Map), map)) = document.get(ROOT, COUNTS_KEY).ok()? else {
            return None;
        };
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

    /// Reads the counters like [`Counts::read`], and creates the map if there is none.
    pub(super) fn of(document: &mut AutoCommit) -> Result<Self, AutomergeError> {
        if let Some(counts) = Self::read(document) {
            return Ok(counts);
        }
        let map = document.put_object(ROOT, COUNTS_KEY, ObjType::Map)?;
        Ok(Self { map, totals: HashMap::new(), sides: BTreeSet::new(), members: Vec::new() })
    }

    /// Returns the sides that have changed a counter.
    pub(super) fn sides(&self) -> &BTreeSet<Side> {
        &self.sides
    }

    /// Returns the total of a counter; `None` on overflow.
    pub(super) fn total(&self, name: &str) -> Option<i128> {
        self.totals.get(name).copied().unwrap_or(Some(0))
    }

    /// Removes the increments of deleted counters: a counter that is created again starts at 0.
    pub(super) fn retain(
        &self,
        document: &mut AutoCommit,
        wanted: &BTreeMap<String, i128>,
    ) -> Result<(), AutomergeError> {
        let is_gone = |member: &&String| split(member).is_none_or(|(name, _)| !wanted.contains_key(name));
        self.members.iter().filter(is_gone).try_for_each(|member| document.delete(&self.map, member.as_str()))
    }

    /// Adds the differences to the wanted totals as increments of a side.
    pub(super) fn add(
        &self,
        document: &mut AutoCommit,
        wanted: &BTreeMap<String, i128>,
        side: &str,
    ) -> Result<(), AutomergeError> {
        for (name, value) in wanted {
            // Values have at most 30 digits, so their difference does not overflow; a total that did overflow
            // was never a value.
            let added = value.saturating_sub(self.total(name).unwrap_or(0));
            if added != 0 {
                document.put(&self.map, format!("{name}{side}"), added.to_string())?;
            }
        }
        Ok(())
    }
}

/// Length of the id of a side.
pub(super) const SIDE_LEN: usize = 32;

/// Splits the key of a member into counter and side.
fn split(member: &str) -> Option<(&str, &str)> {
    member.split_at_checked(member.len().checked_sub(SIDE_LEN)?)
}
