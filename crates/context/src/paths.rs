//! Functions on paths and directories of trees.

use workspace_state::{DirectoryNode, Entry, Node, StoreError, Tree, WalkUsage};

/// Number of entries of a directory that are read at once.
const LIST_PART: u64 = 256;

/// Appends a name to a path.
pub(crate) fn child(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// Splits a path into its parent and its last name. The parent is empty for an entry of the root.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Iterates over the parent directories of a path, innermost first, without the root.
pub(crate) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parent = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/');
    std::iter::successors(parent(path).map(|slash| &path[..slash]), move |path| {
        parent(path).map(|slash| &path[..slash])
    })
}

/// Returns the next [`LIST_PART`] entries of a directory from a position; none at its end.
pub(crate) fn list_part(
    tree: &Tree,
    directory: &DirectoryNode,
    position: u64,
) -> Result<Vec<Entry>, StoreError> {
    if position >= directory.entries {
        return Ok(Vec::new());
    }
    tree.list_range(directory, position, LIST_PART)
}

/// Calls `visit` with path and entry for everything below a directory, parents before children. Fails if the walk
/// exceeds the limits of the store.
pub(crate) fn walk_below<E: From<StoreError>>(
    tree: &Tree,
    path: &[u8],
    directory: &DirectoryNode,
    visit: &mut impl FnMut(Vec<u8>, Entry) -> Result<(), E>,
) -> Result<(), E> {
    let usage = WalkUsage::new(tree.store().walk_limits());
    let mut queue = vec![(path.to_vec(), directory.clone())];
    while let Some((path, directory)) = queue.pop() {
        let mut position = 0;
        loop {
            let entries = list_part(tree, &directory, position)?;
            if entries.is_empty() {
                break;
            }
            position += entries.len() as u64;
            for entry in entries {
                let path = child(&path, &entry.name);
                usage.add(path.len()).map_err(StoreError::from)?;
                if let Node::Directory(node) = &entry.node {
                    queue.push((path.clone(), node.clone()));
                }
                visit(path, entry)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_and_joined() {
        assert_eq!((child(b"", b"a"), child(b"a/b", b"c")), (b"a".to_vec(), b"a/b/c".to_vec()));
        assert_eq!((split(b"a/b/c"), split(b"a")), ((&b"a/b"[..], &b"c"[..]), (&b""[..], &b"a"[..])));
        assert_eq!(ancestors(b"a/b/c").collect::<Vec<_>>(), [&b"a/b"[..], b"a"]);
        assert_eq!(ancestors(b"a").count(), 0);
    }
}
