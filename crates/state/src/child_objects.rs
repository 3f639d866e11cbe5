//! Child objects of a node: the objects that it refers to directly. For garbage collection, verification and recovery.

use crate::codec::Decoded;
use crate::node::{Extent, SymlinkNode};
use crate::node::{FileNode, NodeRef, TAG_FILE, TAG_SYMLINK};
use crate::page::{EntryTime, Page, PageHeader};
use crate::record::Kind;

/// An object by kind and id.
pub(crate) type ObjectId = (Kind, [u8; 32]);

/// Calls `visit` for every object that the encoded node refers to directly.
pub(crate) fn for_each_child(node: Vec<u8>, visit: &mut impl FnMut(ObjectId)) -> Decoded<()> {
    match node.first() {
        Some(&TAG_FILE) => file_chunks(&FileNode::decode(&node)?, visit),
        Some(&TAG_SYMLINK) => drop(SymlinkNode::decode(&node)?),
        _ => for_each_child_of_page(&Page::decode(node)?, visit)?,
    }
    Ok(())
}

/// Calls `visit` for every object that a decoded page refers to directly.
pub(crate) fn for_each_child_of_page(page: &Page, visit: &mut impl FnMut(ObjectId)) -> Decoded<()> {
    for index in 0..page.len() {
        if page.level > 0 {
            visit((Kind::Node, *page.child(index)?.page.as_bytes()));
            continue;
        }
        match page.header {
            PageHeader::Directory { .. } | PageHeader::Page => match page.node_ref(index)? {
                NodeRef::Directory(id) | NodeRef::File(id) | NodeRef::Symlink(id) => {
                    visit((Kind::Node, *id.as_bytes()));
                }
                NodeRef::InlineFile(node) => file_chunks(&FileNode::decode(node)?, visit),
                NodeRef::InlineSymlink(node) => drop(SymlinkNode::decode(node)?),
            },
            PageHeader::Times(_) | PageHeader::TimesPage => {
                if let EntryTime::Directory(id) = page.time(index)? {
                    visit((Kind::Node, *id.as_bytes()));
                }
            }
        }
    }
    Ok(())
}

fn file_chunks(file: &FileNode, visit: &mut impl FnMut(ObjectId)) {
    for extent in &file.extents {
        if let Extent::Data { chunk, .. } = extent {
            visit((Kind::Chunk, *chunk.as_bytes()));
        }
    }
}
