//! Counters of a CRDT document, which is stored as an automerge document.
//!
//! The total of a counter is the sum of all its increments. The increments of all counters are members of one map. A
//! contribution is the set of increments that one version added to the history. The key of an increment consists of
//! the name of its counter and the id of its contribution. Therefore equal increments by both sides of a merge are two
//! members, and a counter that both sides create is the sum of both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use automerge::transaction::Transactable;
use automerge::{AutoCommit, AutomergeError, ObjId, ObjType, ROOT, ReadDoc, Value};

/// Key of the map of increments in the root map.
const COUNTS_KEY: &str = "counts";

/// Id of a contribution: the first [`CONTRIBUTION_ID_LEN`] hexadecimal digits of a hash of the previous history, the
/// text of the version and a number (see `extend_to` in the parent module).
pub(super) type ContributionId = String;

/// Counters of a document.
#[derive(Debug)]
pub(super) struct Counters {
    /// Map of increments.
    map: ObjId,
    /// Totals by counter name; `None` on overflow.
    totals: HashMap<String, Option<i128>>,
    /// Ids of all contributions.
    contributions: BTreeSet<ContributionId>,
    /// Keys of the map of increments.
    keys: Vec<String>,
}

impl Counters {
    /// Reads the counters; `None` if the document has no map of increments, or its format is unknown.
    pub(super) fn read(document: &AutoCommit) -> Option<Self> {
        let Some((Value::Object(ObjType::Map), map)) = document.get(ROOT, COUNTS_KEY).ok()? else {
            return None;
        };
        let (mut totals, mut contributions, mut keys) = (HashMap::new(), BTreeSet::new(), Vec::new());
        for item in document.map_range(&map, ..) {
            let (name, contribution) = split_key(&item.key)?;
            let Value::Scalar(increment) = item.value.into_value() else { return None };
            let increment: i128 = increment.as_str()?.parse().ok()?;
            let total: &mut Option<i128> = totals.entry(name.to_owned()).or_insert(Some(0));
            *total = total.and_then(|total| total.checked_add(increment));
            if !contributions.contains(contribution) {
                contributions.insert(contribution.to_owned());
            }
            keys.push(item.key.to_string());
        }
        Some(Self { map, totals, contributions, keys })
    }

    /// Reads the counters like [`Counters::read`], and creates the map of increments if it does not exist.
    pub(super) fn read_or_create(document: &mut AutoCommit) -> Result<Self, AutomergeError> {
        if let Some(counters) = Self::read(document) {
            return Ok(counters);
        }
        let map = document.put_object(ROOT, COUNTS_KEY, ObjType::Map)?;
        Ok(Self { map, totals: HashMap::new(), contributions: BTreeSet::new(), keys: Vec::new() })
    }

    /// Returns the ids of all contributions.
    pub(super) fn contributions(&self) -> &BTreeSet<ContributionId> {
        &self.contributions
    }

    /// Returns the total of a counter, 0 for an unknown name; `None` on overflow.
    pub(super) fn total(&self, name: &str) -> Option<i128> {
        self.totals.get(name).copied().unwrap_or(Some(0))
    }

    /// Removes the increments of counters that are not in `target_totals`, so that a counter that is created again
    /// starts at 0.
    pub(super) fn retain(
        &self,
        document: &mut AutoCommit,
        target_totals: &BTreeMap<String, i128>,
    ) -> Result<(), AutomergeError> {
        let is_obsolete =
            |key: &&String| split_key(key).is_none_or(|(name, _)| !target_totals.contains_key(name));
        self.keys.iter().filter(is_obsolete).try_for_each(|key| document.delete(&self.map, key.as_str()))
    }

    /// Adds the differences between the current and the target totals as increments of the contribution with the id
    /// `contribution`. This id must not be in [`Self::contributions`]: otherwise the new increments would replace the
    /// existing ones.
    pub(super) fn add_increments(
        &self,
        document: &mut AutoCommit,
        target_totals: &BTreeMap<String, i128>,
        contribution: &str,
    ) -> Result<(), AutomergeError> {
        for (name, value) in target_totals {
            // Target totals have at most `DIGITS_MAX` digits (see `JsonValue::counter`), so their difference from a
            // total does not overflow. A total that overflowed counts as 0 here. It does not matter, since
            // `update::read` returns no value for such a document.
            let increment = value.saturating_sub(self.total(name).unwrap_or(0));
            if increment != 0 {
                document.put(&self.map, format!("{name}{contribution}"), increment.to_string())?;
            }
        }
        Ok(())
    }
}

/// Number of characters of a [`ContributionId`].
pub(super) const CONTRIBUTION_ID_LEN: usize = 32;

/// Splits a key of the map of increments into counter name and contribution id.
fn split_key(key: &str) -> Option<(&str, &str)> {
    key.split_at_checked(key.len().checked_sub(CONTRIBUTION_ID_LEN)?)
}
