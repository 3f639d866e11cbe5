//! Copying files of the context into a root filesystem, without a sandbox.
//!
//! Symlinks of the root filesystem are followed inside of it, as a process in a sandbox would. Those of the context are
//! copied, and never followed.

use std::collections::VecDeque;

use workspace_state::{DirectoryNode, Entry, Node, NodeKind, StoreError, Tree, TreeError, VirtualTree};

use super::target::{is_kept, tree_path};

/// Maximum number of symlinks on the way to a path.
const SYMLINKS_MAX: u32 = 40;

/// Error of a copy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// The copy is not possible with this recipe, context and root. Has the message for the user.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}

type Result<T> = std::result::Result<T, CopyError>;

/// Returns the id of a tree that has exactly the sources of a copy, as `0`, `1` and so on. It identifies the copied
/// content in the key of the step.
pub(super) fn copied_tree(
    mut empty: VirtualTree,
    context: &Tree,
    sources: &[String],
) -> Result<workspace_state::TreeId> {
    for (number, source) in sources.iter().enumerate() {
        let (path, entry) = find(context, source)?;
        empty.graft(number.to_string(), &entry, path)?;
    }
    Ok(empty.tree_id()?)
}

/// Copies sources to `to`, an absolute path: the content of a directory, or a file. Existing directories are merged.
pub(super) fn copy(root: &mut VirtualTree, context: &Tree, sources: &[String], to: &str) -> Result<()> {
    let target = resolve(root, to.as_bytes())?;
    let is_directory = kind(root, &target)? == Some(NodeKind::Directory);
    let into_directory = to.ends_with('/') || sources.len() > 1 || is_directory;
    for source in sources {
        let (path, entry) = find(context, source)?;
        match &entry.node {
            Node::Directory(_) => put_directory(root, context, &entry, (path.as_bytes(), &target))?,
            _ if into_directory => put_leaf(root, &entry, path.as_bytes(), &child(&target, &entry.name))?,
            _ => put_leaf(root, &entry, path.as_bytes(), to.trim_matches('/').as_bytes())?,
        }
    }
    Ok(())
}

/// Creates a directory at an absolute path, unless it exists.
pub(super) fn make_directory(root: &mut VirtualTree, path: &str) -> Result<()> {
    let target = resolve(root, path.as_bytes())?;
    match kind(root, &target)? {
        Some(NodeKind::Directory) => Ok(()),
        Some(_) => Err(CopyError::Invalid(format!("`{path}` is a file, not a directory"))),
        None => Ok(root.mkdir(&target)?),
    }
}

/// Returns true if there is an entry at an absolute path. Symlinks of the root are followed.
pub(super) fn has_entry(root: &VirtualTree, path: &str) -> std::result::Result<bool, TreeError> {
    match resolve(root, path.as_bytes()) {
        Ok(target) => root.exists(&target),
        Err(CopyError::Invalid(_)) => Ok(false),
        Err(CopyError::Tree(error)) => Err(error),
    }
}

/// Finds a source. Returns its path in the tree of the context.
fn find(context: &Tree, source: &str) -> Result<(String, Entry)> {
    let path = tree_path(source);
    let entry = context.entry(&path)?;
    let missing = || {
        CopyError::Invalid(format!("the context has no `{source}`; paths below symlinks are not followed"))
    };
    Ok((path, entry.ok_or_else(missing)?))
}

/// Copies a directory, from a path in the context to one in the root, which may be a symlink.
fn put_directory(
    root: &mut VirtualTree,
    context: &Tree,
    entry: &Entry,
    (from, to): (&[u8], &[u8]),
) -> Result<()> {
    let target = resolve(root, to)?;
    let Node::Directory(directory) = &entry.node else { return Ok(()) };
    match kind(root, &target)? {
        None => Ok(root.graft(&target, entry, from)?),
        Some(NodeKind::Directory) => merge(root, context, directory, (from, &target)),
        Some(_) => Err(CopyError::Invalid(format!(
            "a directory cannot be copied to `/{}`, which is a file",
            String::from_utf8_lossy(&target)
        ))),
    }
}

fn merge(
    root: &mut VirtualTree,
    context: &Tree,
    directory: &DirectoryNode,
    (from, to): (&[u8], &[u8]),
) -> Result<()> {
    for entry in context.list(directory)? {
        let (from, to) = (child(from, &entry.name), child(to, &entry.name));
        match &entry.node {
            Node::Directory(_) => put_directory(root, context, &entry, (&from, &to))?,
            _ => put_leaf(root, &entry, &from, &to)?,
        }
    }
    Ok(())
}

/// Copies a file or a symlink. An existing one is replaced.
fn put_leaf(root: &mut VirtualTree, entry: &Entry, from: &[u8], to: &[u8]) -> Result<()> {
    let (parent, name) = match to.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&to[..slash], &to[slash + 1..]),
        None => (&[][..], to),
    };
    let parent = resolve(root, parent)?;
    if matches!(kind(root, &parent)?, Some(NodeKind::File)) {
        let message = format!("`/{}` is a file, not a directory", String::from_utf8_lossy(&parent));
        return Err(CopyError::Invalid(message));
    }
    let target = child(&parent, name);
    if name.is_empty() || kind(root, &target)? == Some(NodeKind::Directory) {
        let message = format!(
            "`/{}` is a directory, and the copied `{}` is not",
            String::from_utf8_lossy(&target),
            String::from_utf8_lossy(&entry.name)
        );
        return Err(CopyError::Invalid(message));
    }
    Ok(root.graft(&target, entry, from)?)
}

/// Resolves the symlinks of a path inside the root. Components that do not exist stay as they are. Fails if the result
/// is in a directory that templates do not keep.
fn resolve(root: &VirtualTree, path: &[u8]) -> Result<Vec<u8>> {
    let names =
        |path: &[u8]| -> Vec<Vec<u8>> { path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect() };
    let mut pending: VecDeque<Vec<u8>> = names(path).into();
    let (mut resolved, mut links): (Vec<u8>, u32) = (Vec::new(), 0);
    while let Some(name) = pending.pop_front() {
        match name.as_slice() {
            b"" | b"." => continue,
            b".." => {
                let end = resolved.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                resolved.truncate(end);
                continue;
            }
            _ => {}
        }
        let next = child(&resolved, &name);
        match kind(root, &next)? {
            Some(NodeKind::Symlink) => {
                links += 1;
                if links > SYMLINKS_MAX {
                    return Err(too_many_links(path));
                }
                let target = root.read_link(&next)?;
                if target.starts_with(b"/") {
                    resolved.clear();
                }
                for name in names(&target).into_iter().rev() {
                    pending.push_front(name);
                }
            }
            Some(NodeKind::File) if pending.iter().any(|name| !name.is_empty()) => {
                let message = format!("`/{}` is a file, not a directory", String::from_utf8_lossy(&next));
                return Err(CopyError::Invalid(message));
            }
            _ => resolved = next,
        }
    }
    if !is_kept(&resolved) {
        let message = format!("`/{}` is not kept in a template", String::from_utf8_lossy(&resolved));
        return Err(CopyError::Invalid(message));
    }
    Ok(resolved)
}

fn too_many_links(path: &[u8]) -> CopyError {
    CopyError::Invalid(format!("`{}` has too many symlinks", String::from_utf8_lossy(path)))
}

/// Returns the kind of an entry; `None` if there is none. All but the last name of the path are directories, or
/// missing.
fn kind(root: &VirtualTree, path: &[u8]) -> Result<Option<NodeKind>> {
    match path.is_empty() {
        true => Ok(Some(NodeKind::Directory)),
        false if root.exists(path)? => Ok(Some(root.stat(path)?.kind)),
        false => Ok(None),
    }
}

fn child(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use workspace_state::{NewSnapshot, Store};

    use super::*;

    struct Fixture {
        _home: tempfile::TempDir,
        store: Store,
        root: VirtualTree,
    }

    fn fixture() -> Fixture {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(home.path().join("store")).unwrap();
        let mut root = store.empty_tree().unwrap();
        root.write("usr/bin/sh", "sh").unwrap();
        root.symlink("bin", "usr/bin").unwrap();
        root.symlink("usr/up", "../../../etc").unwrap();
        root.write("etc/hosts", "old").unwrap();
        root.symlink("loop", "/loop").unwrap();
        root.symlink("scratch", "/tmp").unwrap();
        Fixture { _home: home, store, root }
    }

    fn context(store: &Store, files: &[(&str, &str)]) -> Tree {
        let mut tree = store.empty_tree().unwrap();
        for (path, content) in files {
            tree.write(path, *content).unwrap();
        }
        tree.symlink("d/link", "/etc/passwd").unwrap();
        let snapshot = tree.commit(NewSnapshot::default()).unwrap();
        Tree::of_snapshot(store, &snapshot).unwrap()
    }

    fn run(fixture: &mut Fixture, sources: &[&str], to: &str) -> Result<()> {
        let context = context(&fixture.store, &[("a", "1"), ("d/b", "2"), ("d/usr/c", "3"), ("bin/x", "4")]);
        let sources: Vec<_> = sources.iter().map(|source| (*source).to_owned()).collect();
        copy(&mut fixture.root, &context, &sources, to)
    }

    #[test]
    fn files_and_directories_are_copied_like_in_a_dockerfile() {
        let mut fixture = fixture();
        run(&mut fixture, &["a"], "/opt/new").unwrap();
        run(&mut fixture, &["a"], "/opt/dir/").unwrap();
        run(&mut fixture, &["a"], "/etc").unwrap();
        run(&mut fixture, &["a"], "/etc/hosts").unwrap();
        run(&mut fixture, &["d"], "/srv").unwrap();
        run(&mut fixture, &["d", "a"], "/both").unwrap();
        for (path, content) in [
            ("opt/new", "1"),
            ("opt/dir/a", "1"),
            ("etc/a", "1"),
            ("etc/hosts", "1"),
            ("srv/b", "2"),
            ("srv/usr/c", "3"),
            ("both/b", "2"),
            ("both/a", "1"),
        ] {
            assert_eq!(fixture.root.read(path).unwrap(), content.as_bytes(), "{path}");
        }
        assert_eq!(fixture.root.read_link("srv/link").unwrap(), b"/etc/passwd", "copied, not followed");
    }

    #[test]
    fn symlinks_of_the_root_are_followed_inside_of_it() {
        let mut fixture = fixture();
        run(&mut fixture, &["a"], "/bin/tool").unwrap();
        run(&mut fixture, &["."], "/").unwrap();
        run(&mut fixture, &["a"], "/usr/up/up").unwrap();
        for path in ["usr/bin/tool", "usr/bin/x", "usr/bin/sh", "etc/up"] {
            assert!(fixture.root.exists(path).unwrap(), "{path}");
        }
        assert_eq!(fixture.root.stat("bin").unwrap().kind, NodeKind::Symlink);
    }

    #[test]
    fn impossible_copies_are_refused() {
        let mut fixture = fixture();
        let before = fixture.root.tree_id().unwrap();
        for (sources, to) in [
            (vec!["missing"], "/x"),
            (vec!["d/link/x"], "/x"),
            (vec!["a"], "/loop/x"),
            (vec!["a"], "/etc/hosts/x"),
            (vec!["d"], "/etc/hosts"),
            (vec!["a"], "/scratch/x"),
        ] {
            let refused = run(&mut fixture, &sources, to);
            assert!(matches!(refused, Err(CopyError::Invalid(_))), "{sources:?} {to}: {refused:?}");
        }
        assert_eq!(fixture.root.tree_id().unwrap(), before);
    }

    #[test]
    fn file_does_not_replace_a_directory() {
        let mut fixture = fixture();
        fixture.root.write("opt/a/old", "old").unwrap();
        for (sources, to) in [(vec!["a"], "/opt/"), (vec!["a"], "/opt"), (vec!["."], "/opt")] {
            let refused = run(&mut fixture, &sources, to).unwrap_err();
            let expected = "`/opt/a` is a directory, and the copied `a` is not";
            assert_eq!(refused.to_string(), expected, "{sources:?} {to}");
        }
    }

    #[test]
    fn copied_tree_depends_on_content_and_not_on_time() {
        let fixture = fixture();
        let id = |content: &str| {
            let context = context(&fixture.store, &[("a", content), ("d/b", "x")]);
            let sources = ["a".to_owned(), "d".to_owned()];
            copied_tree(fixture.store.empty_tree().unwrap(), &context, &sources).unwrap()
        };
        assert_eq!(id("1"), id("1"));
        assert_ne!(id("1"), id("2"));
    }
}
