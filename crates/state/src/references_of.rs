//! References of a node to other objects, for garbage collection, verification and recovery.

use crate::codec::Decoded;
use crate::node::{Extent, SymlinkNode};
use crate::node::{FileNode, NodeRef, TAG_FILE, TAG_SYMLINK};
use crate::page::{EntryTime, Head, Page};
use crate::record::Kind;

/// An object by kind and id.
pub(crate) type ObjectId = (Kind, [u8; 32]);

/// Calls `found` for every object that the encoded node refers to directly.
pub(crate) fn references_of(node: Vec<u8>, found: &mut impl FnMut(ObjectId)) -> Decoded<()> {
    match node.first() {
        Some(&TAG_FILE) => file_chunks(&FileNode::decode(&node)?, found),
        Some(&TAG_SYMLINK) => drop(SymlinkNode::decode(&node)?),
        _ => page_references(&Page::decode(node)?, found)?,
    }
    Ok(())
}

/// Calls `found` for every object that a decoded page refers to directly.
pub(crate) fn page_references(page: &Page, found: &mut impl FnMut(ObjectId)) -> Decoded<()> {
    for index in 0..page.len() {
        if page.level > 0 {
            found((Kind::Node, *page.child(index)?.page.as_bytes()));
            continue;
        }
        match page.head {
            Head::Directory { .. } | Head::Page => match page.node_ref(index)? {
                NodeRef::Directory(id) | NodeRef::File(id) | NodeRef::Symlink(id) => {
                    found((Kind::Node, *id.as_bytes()));
                }
                NodeRef::InlineFile(node) => file_chunks(&FileNode::decode(node)?, found),
                NodeRef::InlineSymlink(node) => drop(SymlinkNode::decode(node)?),
            },
            Head::Times(_) | Head::TimesPage => {
                if let EntryTime::Directory(id) = page.time(index)? {
                    found((Kind::Node, *id.as_bytes()));
                }
            }
        }
    }
    Ok(())
}

fn file_chunks(file: &FileNode, found: &mut impl FnMut(ObjectId)) {
    for extent in &file.extents {
        if let Extent::Data { chunk, .. } = extent {
            found((Kind::Chunk, *chunk.as_bytes()));
        }
    }
}
