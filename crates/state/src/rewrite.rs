//! Rewriting a directory with some entries changed.

use std::borrow::Cow;

use crate::batch::Batch;
use crate::error::Result;
use crate::id::NodeId;
use crate::node::Xattrs;
use crate::page::{DirectoryWriter, Page, PageHeader};
use crate::snapshot::Timestamp;
use crate::store::Store;
use crate::tree::check_same_shape;

/// An encoded node reference and time.
pub(crate) type EncodedEntry<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A changed name: its encoded node reference and time, or `None` if it is removed.
pub(crate) struct Edit<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) entry: Option<EncodedEntry<'a>>,
}

/// Writes the directory `base` with `edits` applied, which must be sorted by name. `base` and the result are the
/// ids of a directory and of its times; `None` for a new directory. `header` and `modified` replace those of the
/// base if they are `Some`.
pub(crate) fn rewrite_directory(
    store: &Store,
    batch: &Batch,
    base: Option<(NodeId, NodeId)>,
    header: Option<PageHeader>,
    modified: Option<Timestamp>,
    edits: &[Edit<'_>],
) -> Result<(NodeId, NodeId)> {
    let Some((id, times)) = base else {
        let header = header.unwrap_or(PageHeader::Directory { mode: 0o755, xattrs: Xattrs::new() });
        let total = edits.iter().filter(|edit| edit.entry.is_some()).count();
        let mut writer = DirectoryWriter::new(batch, total as u64);
        push_edits(&mut writer, edits)?;
        return writer.finish(&header, modified);
    };
    let page = store.read_page(&id)?;
    let time_page = store.read_page(&times)?;
    check_same_shape(&id, &page, &time_page)?;
    let header = header.unwrap_or_else(|| page.header.clone());
    let modified = modified.or(match time_page.header {
        PageHeader::Times(modified) => modified,
        _ => None,
    });
    let total = total_after(store, id, &page, edits)?;
    let mut writer = DirectoryWriter::new(batch, total);
    if page.level == 0 {
        writer.reserve_like(&page, &time_page);
        merge(&mut writer, &page, &time_page, edits)?;
    } else {
        merge_pages(store, &mut writer, id, times, edits)?;
    }
    writer.finish(&header, modified)
}

/// Returns the number of entries of the directory after the edits.
fn total_after(store: &Store, id: NodeId, page: &Page, edits: &[Edit<'_>]) -> Result<u64> {
    let mut total = page.entries;
    for edit in edits {
        let exists = match page.level {
            0 => page.position_of(edit.name).1,
            _ => store.find_entry(id, None, edit.name)?.is_some(),
        };
        match (exists, edit.entry.is_some()) {
            (true, false) => total -= 1,
            (false, true) => total += 1,
            _ => {}
        }
    }
    Ok(total)
}

/// Merges edits into a paged directory. Pages without edits are reused, as long as the page before them ends
/// at a split point.
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
            let (entries, times) = (store.read_page(&page.page)?, store.read_page(&page.times)?);
            check_same_shape(&page.page, &entries, &times)?;
            merge(writer, &entries, &times, page_edits)?;
        }
    }
    Ok(())
}

fn merge(
    writer: &mut DirectoryWriter<'_, Batch>,
    page: &Page,
    times: &Page,
    edits: &[Edit<'_>],
) -> Result<()> {
    let mut index = 0;
    for edit in edits {
        let (next, exists) = page.position_of(edit.name);
        writer.push_entries(page, times, index..next)?;
        index = next + usize::from(exists);
        if let Some((node_ref, time)) = &edit.entry {
            writer.push(edit.name, node_ref, time)?;
        }
    }
    writer.push_entries(page, times, index..page.len())
}

fn push_edits(writer: &mut DirectoryWriter<'_, Batch>, edits: &[Edit<'_>]) -> Result<()> {
    for edit in edits {
        if let Some((node_ref, time)) = &edit.entry {
            writer.push(edit.name, node_ref, time)?;
        }
    }
    Ok(())
}
