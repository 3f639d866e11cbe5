//! Search for hard links below a directory. A view (the part of a tree that an agent may read) reuses a directory
//! unchanged only if there are none: the labels of hard links would reveal that a file has hidden names.

use workspace_state::{DirectoryNode, Node, NodeId, StoreError, Tree, WalkUsage};

use super::cache::ViewCache;
use crate::paths::list_part;

/// Directory whose entries were read.
struct Visit {
    /// Node with the times and link labels of the entries; `None` if it has none.
    times: Option<NodeId>,
    /// Subdirectories that were not searched yet.
    remaining: Vec<DirectoryNode>,
    /// True if an entry below the directory is a hard link.
    has_links: bool,
}

/// Returns true if a file in a directory or below it has a link label, which marks a hard link. Each directory is read
/// once: `cache` keeps the result by [`DirectoryNode::times`].
pub(super) fn has_links(
    tree: &Tree,
    directory: &DirectoryNode,
    cache: &ViewCache,
) -> Result<bool, StoreError> {
    let cached = |node: &DirectoryNode| match &node.times {
        Some(times) => cache.has_links(times),
        // Link labels are stored with the times.
        None => Some(false),
    };
    if let Some(has_links) = cached(directory) {
        return Ok(has_links);
    }
    let usage = WalkUsage::new(tree.store().walk_limits());
    let mut visits = vec![visit(tree, directory, &usage)?];
    let mut result = false;
    while let Some(innermost) = visits.last_mut() {
        match innermost.remaining.pop() {
            Some(subdirectory) => match cached(&subdirectory) {
                Some(has_links) => innermost.has_links |= has_links,
                None => visits.push(visit(tree, &subdirectory, &usage)?),
            },
            None => {
                result = innermost.has_links;
                if let Some(times) = innermost.times {
                    cache.set_has_links(times, result);
                }
                visits.pop();
                if let Some(parent) = visits.last_mut() {
                    parent.has_links |= result;
                }
            }
        }
    }
    Ok(result)
}

/// Reads the entries of a directory.
fn visit(tree: &Tree, directory: &DirectoryNode, usage: &WalkUsage) -> Result<Visit, StoreError> {
    let mut visit = Visit { times: directory.times, remaining: Vec::new(), has_links: false };
    let mut position = 0;
    loop {
        let entries = list_part(tree, directory, position)?;
        if entries.is_empty() {
            return Ok(visit);
        }
        position += entries.len() as u64;
        for entry in entries {
            match entry.node {
                Node::Directory(node) => {
                    usage.add(size_of::<DirectoryNode>())?;
                    visit.remaining.push(node);
                }
                Node::File(_) | Node::Symlink(_) => visit.has_links |= entry.link_label.is_some(),
            }
        }
    }
}
