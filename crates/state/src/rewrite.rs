//! Rewriting a directory with some entries changed.
//!
//! Stored directories are immutable, so a change writes a new directory node. A long directory is split into pages
//! (`page.rs`), and the new node reuses pages without changes. Modification times are in separate nodes with the same
//! pages, which are rewritten together with the directory.

use std::borrow::Cow;

use crate::batch::Batch;
use crate::error::Result;
use crate::id::NodeId;
use crate::node::Xattrs;
use crate::page::{DirectoryWriter, EncodedList, ListHeader};
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree::check_same_shape;

/// Encoded [`NodeRef`](crate::node::NodeRef) and [`EntryTime`](crate::page::EntryTime) of an entry.
pub(crate) type EncodedEntry<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A changed name: its new entry, or `None` if it is removed.
pub(crate) struct Edit<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) entry: Option<EncodedEntry<'a>>,
}

/// Writes the directory `base` into `batch`, the new objects of a commit, with `edits` applied, which must be sorted
/// by name. `base` has the ids of a directory node and of the node with its times; `None` for a new directory. Returns
/// these ids of the written directory. `header` (mode and attributes) and `modified` (modification time) replace those
/// of the base if they are `Some`.
pub(crate) fn rewrite_directory(
    store: &Store,
    batch: &Batch,
    base: Option<(NodeId, NodeId)>,
    header: Option<ListHeader>,
    modified: Option<Timestamp>,
    edits: &[Edit<'_>],
) -> Result<(NodeId, NodeId)> {
    let Some((id, times)) = base else {
        let header = header.unwrap_or(ListHeader::Directory { mode: 0o755, xattrs: Xattrs::new() });
        let total = edits.iter().filter(|edit| edit.entry.is_some()).count();
        let mut writer = DirectoryWriter::new(batch, total as u64);
        push_edits(&mut writer, edits)?;
        return writer.finish(&header, modified);
    };
    let root = store.read_list(&id)?;
    let root_times = store.read_list(&times)?;
    check_same_shape(&id, &root, &root_times)?;
    let header = header.unwrap_or_else(|| root.header.clone());
    let modified = modified.or(match root_times.header {
        ListHeader::Times(modified) => modified,
        _ => None,
    });
    let total = total_after(store, id, &root, edits)?;
    let mut writer = DirectoryWriter::new(batch, total);
    if root.is_split() {
        merge_pages(store, &mut writer, id, times, edits)?;
    } else {
        writer.reserve_like(&root, &root_times);
        merge(&mut writer, &root, &root_times, edits)?;
    }
    writer.finish(&header, modified)
}

/// Returns the number of entries of the directory after the edits, which decides whether the result is split into
/// pages.
fn total_after(store: &Store, id: NodeId, root: &EncodedList, edits: &[Edit<'_>]) -> Result<u64> {
    let mut total = root.entries;
    for edit in edits {
        let exists = if root.is_split() {
            let no_times = None;
            store.find_entry(id, no_times, edit.name)?.is_some()
        } else {
            root.position_of(edit.name).1
        };
        match (exists, edit.entry.is_some()) {
            (true, false) => total -= 1,
            (false, true) => total += 1,
            _ => {}
        }
    }
    Ok(total)
}

/// Merges edits into a directory that is split into pages. A page without edits is reused if the page before it ends
/// where it ended in the base. The hash of the last name of a page decides about its end (`page.rs`).
fn merge_pages(
    store: &Store,
    writer: &mut DirectoryWriter<'_, Batch>,
    id: NodeId,
    times: NodeId,
    mut edits: &[Edit<'_>],
) -> Result<()> {
    let pages = store.leaf_pages(id, times)?;
    let last = pages.len().saturating_sub(1);
    for (position, page) in pages.into_iter().enumerate() {
        // Number of edits in this page. The last page also takes names after all existing ones.
        let edit_count = if position == last {
            edits.len()
        } else {
            edits.partition_point(|edit| edit.name <= page.last_name.as_slice())
        };
        let (page_edits, later) = edits.split_at(edit_count);
        edits = later;
        if page_edits.is_empty() && writer.is_at_page_start() {
            writer.push_page(page);
        } else {
            let (leaf, leaf_times) = (store.read_list(&page.id)?, store.read_list(&page.times)?);
            check_same_shape(&page.id, &leaf, &leaf_times)?;
            merge(writer, &leaf, &leaf_times, page_edits)?;
        }
    }
    Ok(())
}

/// Writes the entries of a list without pages, or of one page, with `edits` applied.
fn merge(
    writer: &mut DirectoryWriter<'_, Batch>,
    list: &EncodedList,
    times: &EncodedList,
    edits: &[Edit<'_>],
) -> Result<()> {
    let mut index = 0;
    for edit in edits {
        let (next, exists) = list.position_of(edit.name);
        writer.push_entries(list, times, index..next)?;
        index = next + usize::from(exists);
        if let Some((node_ref, time)) = &edit.entry {
            writer.push(edit.name, node_ref, time)?;
        }
    }
    writer.push_entries(list, times, index..list.len())
}

/// Writes the entries of a new directory.
fn push_edits(writer: &mut DirectoryWriter<'_, Batch>, edits: &[Edit<'_>]) -> Result<()> {
    for edit in edits {
        if let Some((node_ref, time)) = &edit.entry {
            writer.push(edit.name, node_ref, time)?;
        }
    }
    Ok(())
}
