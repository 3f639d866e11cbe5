//! Functions on paths and on maps sorted by path. Paths have no leading `/`; the root is the empty path.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Returns the parent directory; `None` for an entry of the root.
pub(super) fn parent(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|byte| *byte == b'/').map(|slash| &path[..slash])
}

/// Returns the last component of a path.
pub(super) fn name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// Iterates over the directories above a path, innermost first, without the root.
pub(super) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(parent(path), |path| parent(path))
}

/// Appends a name to a path.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// Replaces the prefix `from` of a path by `to`. The path must be `from` or below it.
pub(super) fn replace_prefix(path: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let rest = path[from.len()..].strip_prefix(b"/").unwrap_or(&path[from.len()..]);
    match rest {
        [] => to.to_vec(),
        rest => join(to, rest),
    }
}

/// Returns true if a path is below another one.
pub(super) fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Iterates over the entries of a map that are below a path.
pub(super) fn below<'m, V>(
    map: &'m BTreeMap<Vec<u8>, V>,
    path: &[u8],
) -> impl DoubleEndedIterator<Item = (&'m Vec<u8>, &'m V)> + use<'m, V> {
    // `0` is the byte after `/`, so the range has exactly the paths that start with `path` and `/`.
    let (from, to) = ([path, b"/"].concat(), [path, b"0"].concat());
    let bounds = if path.is_empty() {
        (Bound::Unbounded, Bound::Unbounded)
    } else {
        (Bound::Included(from), Bound::Excluded(to))
    };
    map.range::<Vec<u8>, _>(bounds)
}

/// Returns true if a map contains a path, or a path below it.
pub(super) fn contains_at_or_below<V>(map: &BTreeMap<Vec<u8>, V>, path: &[u8]) -> bool {
    !map.is_empty() && (map.contains_key(path) || below(map, path).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_helpers_split_and_join() {
        assert_eq!((parent(b"a/b/c"), parent(b"a")), (Some(&b"a/b"[..]), None));
        assert_eq!((name(b"a/b"), name(b"a")), (&b"b"[..], &b"a"[..]));
        assert_eq!(ancestors(b"a/b/c").collect::<Vec<_>>(), [&b"a/b"[..], b"a"]);
        assert_eq!(replace_prefix(b"a/b/c", b"a/b", b"x"), b"x/c");
        assert_eq!(replace_prefix(b"a/b/c", b"a/b/c", b"x/y"), b"x/y");
    }

    #[test]
    fn below_excludes_siblings_with_a_common_prefix() {
        let map = BTreeMap::from(["a", "a-b", "a/b", "a/c/d", "a0"].map(|path| (path.into(), ())));
        let found: Vec<&[u8]> = below(&map, b"a").map(|(path, ())| &path[..]).collect();
        assert_eq!(found, [&b"a/b"[..], b"a/c/d"]);
        assert!(
            contains_at_or_below(&map, b"a/c")
                && contains_at_or_below(&map, b"a0")
                && !contains_at_or_below(&map, b"a/b/c")
        );
    }
}
