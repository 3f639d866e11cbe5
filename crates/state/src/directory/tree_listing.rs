//! Entries of a directory in a tree of the store. They stay encoded, because most are only compared.

use std::sync::Arc;

use crate::error::Result;
use crate::id::NodeId;
use crate::page::EncodedList;
use crate::store::Store;

/// Ids of a tree and of its times.
pub(super) type TreeIds = (NodeId, NodeId);

/// All entries of a directory in a tree, sorted by name.
#[derive(Default)]
pub(super) struct Listing {
    /// Lists of the directory at level 0 (`page.rs`), each with the list of its times.
    leaves: Vec<(Arc<EncodedList>, Arc<EncodedList>)>,
}

/// One encoded entry.
#[derive(Clone, Copy)]
pub(super) struct ListedEntry<'l> {
    pub(super) name: &'l [u8],
    pub(super) node_ref: &'l [u8],
    pub(super) time: &'l [u8],
}

/// A name with its entries in the old and the new tree.
pub(super) struct EntryPair<'l> {
    pub(super) name: &'l [u8],
    pub(super) before: Option<ListedEntry<'l>>,
    pub(super) after: Option<ListedEntry<'l>>,
}

impl Listing {
    /// Reads the entries of a directory; empty for `None`.
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

    pub(super) fn iter(&self) -> impl Iterator<Item = ListedEntry<'_>> {
        self.leaves
            .iter()
            .flat_map(|(list, times)| (0..list.len()).map(|index| listed_entry(list, times, index)))
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<ListedEntry<'_>> {
        let ends_before = |(list, _): &(Arc<EncodedList>, Arc<EncodedList>)| {
            list.len().checked_sub(1).is_none_or(|last| list.name(last) < name)
        };
        let (list, times) = self.leaves.get(self.leaves.partition_point(ends_before))?;
        list.find(name).map(|index| listed_entry(list, times, index))
    }
}

fn listed_entry<'l>(list: &'l EncodedList, times: &'l EncodedList, index: usize) -> ListedEntry<'l> {
    ListedEntry { name: list.name(index), node_ref: list.body(index), time: times.body(index) }
}

impl EntryPair<'_> {
    /// Returns true if both trees have the same entry.
    pub(super) fn is_same(&self) -> bool {
        match (self.before, self.after) {
            (Some(before), Some(after)) => before.node_ref == after.node_ref && before.time == after.time,
            _ => false,
        }
    }
}

/// Pairs the entries of two listings by name. Removed entries come first, to free space.
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
