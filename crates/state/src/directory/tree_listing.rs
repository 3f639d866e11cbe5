//! Listings of directories in trees of the store, for comparisons. Entries stay encoded, because most of them are
//! equal.

use std::sync::Arc;

use crate::error::Result;
use crate::id::NodeId;
use crate::page::EncodedList;
use crate::store::Store;

/// Ids of a directory's node and of the node with its modification times.
pub(super) type TreeIds = (NodeId, NodeId);

/// All entries of a directory in a tree, sorted by name.
#[derive(Default)]
pub(super) struct Listing {
    /// Lists of encoded entries in order, each with the list of their times. A long directory has several lists, see
    /// `page.rs`.
    leaves: Vec<(Arc<EncodedList>, Arc<EncodedList>)>,
}

/// One encoded entry.
#[derive(Clone, Copy)]
pub(super) struct ListedEntry<'l> {
    pub(super) name: &'l [u8],
    /// Encoded [`NodeRef`](crate::node::NodeRef).
    pub(super) node_ref: &'l [u8],
    /// Encoded [`EntryTime`](crate::page::EntryTime).
    pub(super) time: &'l [u8],
}

/// Entries with the same name in the old and the new tree. At least one of them exists.
pub(super) struct EntryPair<'l> {
    pub(super) name: &'l [u8],
    pub(super) before: Option<ListedEntry<'l>>,
    pub(super) after: Option<ListedEntry<'l>>,
}

impl Listing {
    /// Reads the entries of a directory; returns an empty listing for `None`.
    pub(super) fn of(store: &Store, directory: Option<TreeIds>) -> Result<Self> {
        let mut listing = Self::default();
        if let Some((node, times)) = directory {
            store.for_each_leaf(node, Some(times), &mut |list, times| {
                listing.leaves.extend(times.map(|times| (Arc::clone(list), Arc::clone(times))));
                Ok(())
            })?;
        }
        Ok(listing)
    }

    /// Iterates over the entries, sorted by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = ListedEntry<'_>> {
        self.leaves
            .iter()
            .flat_map(|(list, times)| (0..list.len()).map(|index| listed_entry(list, times, index)))
    }

    /// Returns the entry with this name.
    pub(super) fn get(&self, name: &[u8]) -> Option<ListedEntry<'_>> {
        let ends_before = |(list, _): &(Arc<EncodedList>, Arc<EncodedList>)| {
            list.len().checked_sub(1).is_none_or(|last| list.name(last) < name)
        };
        let (list, times) = self.leaves.get(self.leaves.partition_point(ends_before))?;
        list.find(name).map(|index| listed_entry(list, times, index))
    }
}

/// Returns the entry at `index` of a list and its times.
fn listed_entry<'l>(list: &'l EncodedList, times: &'l EncodedList, index: usize) -> ListedEntry<'l> {
    ListedEntry { name: list.name(index), node_ref: list.body(index), time: times.body(index) }
}

impl EntryPair<'_> {
    /// Returns true if both trees have an entry with this name, and the entries and their times are equal.
    pub(super) fn is_same(&self) -> bool {
        match (self.before, self.after) {
            (Some(before), Some(after)) => before.node_ref == after.node_ref && before.time == after.time,
            _ => false,
        }
    }
}

/// Pairs the entries of two listings by name. Returns entries that only the old tree has first, so that their removal
/// frees space for the others.
pub(super) fn pairs<'l>(old: &'l Listing, new: &'l Listing) -> Vec<EntryPair<'l>> {
    let (mut removed, mut present) = (Vec::new(), Vec::new());
    let mut before = old.iter().peekable();
    for after in new.iter() {
        while let Some(entry) = before.next_if(|entry| entry.name < after.name) {
            removed.push(EntryPair { name: entry.name, before: Some(entry), after: None });
        }
        let same_name = before.next_if(|entry| entry.name == after.name);
        present.push(EntryPair { name: after.name, before: same_name, after: Some(after) });
    }
    removed.extend(before.map(|entry| EntryPair { name: entry.name, before: Some(entry), after: None }));
    removed.append(&mut present);
    removed
}
