//! Cursor over the entries of a directory in the store. Pages are read only on request.
//!
//! A long list of entries is split into pages, which are nodes of their own (`page.rs`). A list with entries as items
//! has level 0; a list of pages has a higher level. The modification times of the entries are in a second list of the
//! same shape.

use std::sync::Arc;

use super::Directory;
use crate::codec::DecodeError;
use crate::entry::Entry;
use crate::error::{Result, StoreError};
use crate::id::NodeId;
use crate::node::NodeRef;
use crate::page::{EncodedList, EntryTime, ListHeader};
use crate::store::Store;

/// Cursor over the pages and entries of a directory.
pub(super) struct Cursor<'s> {
    store: &'s Store,
    /// List in the node of the directory itself.
    root: Arc<EncodedList>,
    /// Positions in the root list and in the pages that contain the current item, the root list first.
    stack: Vec<PagePosition>,
}

/// Item at the current position.
pub(super) enum Item<'c> {
    /// A page that is not read yet. It may be skipped or entered.
    Page(UnreadPage),
    /// Entries of a list at level 0, from the current position on.
    Entries(&'c mut PagePosition),
    /// End of the directory.
    End,
}

/// Page that is not read yet.
#[derive(Clone, Copy)]
pub(super) struct UnreadPage {
    pub(super) id: NodeId,
    pub(super) level: u8,
}

impl<'s> Cursor<'s> {
    /// Reads the root list of a directory. The cursor is at its first item.
    pub(super) fn open(store: &'s Store, directory: Directory) -> Result<Self> {
        let root = store.read_list(&directory.id)?;
        if !matches!(root.header, ListHeader::Directory { .. }) {
            return Err(undecodable(&directory.id, DecodeError("not a directory")));
        }
        let times = Times::of(directory.times);
        let stack = vec![PagePosition { id: directory.id, list: Arc::clone(&root), times, index: 0 }];
        Ok(Self { store, root, stack })
    }

    /// Returns the header of the directory node: mode and extended attributes.
    pub(super) fn header(&self) -> &ListHeader {
        &self.root.header
    }

    /// Returns the item at the current position without moving the cursor.
    pub(super) fn peek(&mut self) -> Result<Item<'_>> {
        while self.stack.last().is_some_and(|top| !top.has_more()) {
            self.stack.pop();
        }
        let Some(top) = self.stack.last_mut() else { return Ok(Item::End) };
        if top.list.level == 0 {
            return Ok(Item::Entries(top));
        }
        let child = top.list.child(top.index).map_err(|source| undecodable(&top.id, source))?;
        Ok(Item::Page(UnreadPage { id: child.id, level: top.list.level - 1 }))
    }

    /// Skips the page at the current position without reading it.
    pub(super) fn skip(&mut self) {
        if let Some(top) = self.stack.last_mut() {
            top.skip();
        }
    }

    /// Reads the page at the current position, which must be `unread`. Moves the cursor to its first item.
    pub(super) fn enter(&mut self, unread: UnreadPage) -> Result<()> {
        let Some(top) = self.stack.last_mut() else { return Ok(()) };
        let times = match top.times.read(self.store, &top.list)? {
            Some(times) => {
                Times::Unread(times.child(top.index).map_err(|source| undecodable(&top.id, source))?.id)
            }
            None => Times::Unknown,
        };
        top.skip();
        let list = self.store.read_list(&unread.id)?;
        if !matches!(list.header, ListHeader::Page) || list.level != unread.level {
            return Err(undecodable(&unread.id, DecodeError("not the page that its directory refers to")));
        }
        self.stack.push(PagePosition { id: unread.id, list, times, index: 0 });
        Ok(())
    }
}

/// Position in the root list of a directory or in one of its pages.
pub(super) struct PagePosition {
    /// Node with the list.
    id: NodeId,
    list: Arc<EncodedList>,
    times: Times,
    /// Index of the current item.
    index: usize,
}

impl PagePosition {
    /// Returns true if there is a current item.
    pub(super) fn has_more(&self) -> bool {
        self.index < self.list.len()
    }

    /// Moves to the next item.
    pub(super) fn skip(&mut self) {
        self.index += 1;
    }

    /// Moves both positions past the entries that are equal in both lists.
    pub(super) fn skip_same(&mut self, other: &mut Self) {
        let same = self.list.count_same_items(self.index, &other.list, other.index);
        self.index += same;
        other.index += same;
    }

    /// Returns the name of the current entry.
    pub(super) fn name(&self) -> &[u8] {
        self.list.name(self.index)
    }

    /// Returns the encoded node reference of the current entry.
    pub(super) fn encoded_node_ref(&self) -> &[u8] {
        self.list.body(self.index)
    }

    /// Returns the node reference of the current entry.
    pub(super) fn node_ref(&self) -> Result<NodeRef<'_>> {
        self.list.node_ref(self.index).map_err(|source| undecodable(&self.id, source))
    }

    /// Decodes the current entry.
    pub(super) fn entry(&mut self, store: &Store) -> Result<Entry> {
        let times = self.times.read(store, &self.list)?;
        store.decode_entry(&self.list, times, self.index)
    }

    /// Returns the id of the current entry's times node; `None` if it is not known. The entry must be a directory.
    pub(super) fn directory_times(&mut self, store: &Store) -> Result<Option<NodeId>> {
        let Some(times) = self.times.read(store, &self.list)? else { return Ok(None) };
        match times.time(self.index).map_err(|source| undecodable(&self.id, source))? {
            EntryTime::Directory(times) => Ok(Some(times)),
            EntryTime::Unknown | EntryTime::Modified { .. } => Ok(None),
        }
    }
}

/// Modification times of the entries of a list. They are read only when an entry is decoded.
enum Times {
    /// The tree was opened without times.
    Unknown,
    /// Not read yet.
    Unread(NodeId),
    Read(Arc<EncodedList>),
}

impl Times {
    fn of(id: Option<NodeId>) -> Self {
        id.map_or(Self::Unknown, Self::Unread)
    }

    /// Returns the list of times that belongs to `list`; `None` if the times are not known.
    fn read(&mut self, store: &Store, list: &EncodedList) -> Result<Option<&EncodedList>> {
        if let Self::Unread(id) = self {
            let times = store.read_list(id)?;
            if times.level != list.level || times.len() != list.len() {
                return Err(undecodable(id, DecodeError("times of another shape than their directory")));
            }
            *self = Self::Read(times);
        }
        Ok(match self {
            Self::Read(times) => Some(times),
            Self::Unknown | Self::Unread(_) => None,
        })
    }
}

fn undecodable(id: &NodeId, source: DecodeError) -> StoreError {
    StoreError::Undecodable { what: format!("node {id}"), source }
}
