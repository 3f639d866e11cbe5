//! Child objects of a node: the chunks and nodes that it refers to directly.
//!
//! Garbage collection, rebuilds of the index and commits follow these references. A directory node has a list of its
//! entries; a long list is split into pages, which are nodes too (`page.rs`). Modification times are in separate nodes
//! with lists of the same shape.

use crate::codec::Decoded;
use crate::node::{Extent, SymlinkNode};
use crate::node::{FileNode, NodeRef, TAG_FILE, TAG_SYMLINK};
use crate::page::{EncodedList, EntryTime, ListHeader};
use crate::record::Kind;

/// An object by kind and id.
pub(crate) type ObjectId = (Kind, [u8; 32]);

/// Calls `visit` for every object that an encoded node refers to directly. Fails if the node cannot be decoded.
pub(crate) fn for_each_child(node: Vec<u8>, visit: &mut impl FnMut(ObjectId)) -> Decoded<()> {
    match node.first() {
        Some(&TAG_FILE) => file_chunks(&FileNode::decode(&node)?, visit),
        // A symlink has no children, and is only validated.
        Some(&TAG_SYMLINK) => drop(SymlinkNode::decode(&node)?),
        _ => for_each_child_of_list(&EncodedList::decode(node)?, visit)?,
    }
    Ok(())
}

/// Calls `visit` for every object that a list refers to directly.
pub(crate) fn for_each_child_of_list(list: &EncodedList, visit: &mut impl FnMut(ObjectId)) -> Decoded<()> {
    for index in 0..list.len() {
        // Above level 0, the items of a list are pages.
        if list.level > 0 {
            visit((Kind::Node, *list.child(index)?.id.as_bytes()));
            continue;
        }
        match list.header {
            ListHeader::Directory { .. } | ListHeader::Page => match list.node_ref(index)? {
                NodeRef::Directory(id) | NodeRef::File(id) | NodeRef::Symlink(id) => {
                    visit((Kind::Node, *id.as_bytes()));
                }
                // The node is a part of the entry, and no object of its own.
                NodeRef::InlineFile(node) => file_chunks(&FileNode::decode(node)?, visit),
                NodeRef::InlineSymlink(node) => drop(SymlinkNode::decode(node)?),
            },
            ListHeader::Times(_) | ListHeader::TimesPage => {
                if let EntryTime::Directory(id) = list.time(index)? {
                    visit((Kind::Node, *id.as_bytes()));
                }
            }
        }
    }
    Ok(())
}

/// Calls `visit` for every chunk of a file.
fn file_chunks(file: &FileNode, visit: &mut impl FnMut(ObjectId)) {
    for extent in &file.extents {
        if let Extent::Data { chunk, .. } = extent {
            visit((Kind::Chunk, *chunk.as_bytes()));
        }
    }
}
