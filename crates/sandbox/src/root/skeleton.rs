//! Files and directories that every root filesystem has, added to the files of a template.
//!
//! The runtime makes sure of the mount points again when it starts a sandbox. Here they are made once, so that a
//! new sandbox need not change anything.

use workspace_state::{Attributes, NodeKind, TreeError, VirtualTree, owned_by};

/// User and group id of the sandbox user.
const SANDBOX_UID: u32 = 1000;
/// Directories that other filesystems are mounted on.
const MOUNT_POINTS: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "workspace"];
/// Other directories with their modes. An existing entry is left as it is.
const DIRECTORIES: [(&str, u16); 5] =
    [("etc", 0o755), ("home", 0o755), ("root", 0o700), ("var", 0o755), ("var/tmp", 0o1777)];
const HOME: &str = "home/sandbox";
/// Files that others are mounted on.
const MOUNTED_FILES: [&str; 3] = ["etc/hostname", "etc/hosts", "etc/resolv.conf"];
/// Maximum size of a list of users or groups that is changed, in bytes.
const LIST_MAX: u64 = 1 << 20;

/// Adds the files and directories that every root has.
pub(crate) fn add(tree: &mut VirtualTree) -> Result<(), TreeError> {
    for name in MOUNT_POINTS {
        if kind(tree, name)? != Some(NodeKind::Directory) {
            remove(tree, name)?;
            make_directory(tree, name, 0o755)?;
        }
    }
    for (name, mode) in DIRECTORIES {
        if kind(tree, name)?.is_none() && has_parent(tree, name)? {
            make_directory(tree, name, mode)?;
        }
    }
    if has_parent(tree, HOME)? && matches!(kind(tree, HOME)?, None | Some(NodeKind::Directory)) {
        let xattrs = owned_by(SANDBOX_UID, SANDBOX_UID);
        tree.put_directory(HOME, Attributes { mode: 0o755, xattrs, ..Attributes::default() })?;
    }
    if kind(tree, "etc")? != Some(NodeKind::Directory) {
        return Ok(());
    }
    for name in MOUNTED_FILES {
        if matches!(kind(tree, name)?, None | Some(NodeKind::Symlink)) {
            remove(tree, name)?;
            tree.write(name, "")?;
        }
    }
    add_line(
        tree,
        "etc/passwd",
        &format!("sandbox:x:{SANDBOX_UID}:{SANDBOX_UID}:sandbox:/home/sandbox:/bin/sh\n"),
    )?;
    add_line(tree, "etc/group", &format!("sandbox:x:{SANDBOX_UID}:\n"))
}

/// Adds the line of the sandbox user or group to a list, unless the list has its id or is no regular file.
fn add_line(tree: &mut VirtualTree, path: &str, line: &str) -> Result<(), TreeError> {
    let mut text = match kind(tree, path)? {
        None => Vec::new(),
        Some(NodeKind::File) if tree.stat(path)?.size <= LIST_MAX => tree.read(path)?,
        Some(_) => return Ok(()),
    };
    let id = SANDBOX_UID.to_string();
    let has_id = |line: &[u8]| line.split(|byte| *byte == b':').nth(2) == Some(id.as_bytes());
    if text.split(|byte| *byte == b'\n').any(has_id) {
        return Ok(());
    }
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(line.as_bytes());
    tree.write(path, text)
}

/// Returns the kind of the entry at a path; `None` if there is none. Symlinks are not followed.
fn kind(tree: &VirtualTree, path: &str) -> Result<Option<NodeKind>, TreeError> {
    if !has_parent(tree, path)? || !tree.exists(path)? {
        return Ok(None);
    }
    Ok(Some(tree.stat(path)?.kind))
}

/// Returns true if the parent of a path is a directory.
fn has_parent(tree: &VirtualTree, path: &str) -> Result<bool, TreeError> {
    match path.rsplit_once('/') {
        None => Ok(true),
        Some((parent, _)) => Ok(tree.exists(parent)? && tree.stat(parent)?.kind == NodeKind::Directory),
    }
}

fn remove(tree: &mut VirtualTree, path: &str) -> Result<(), TreeError> {
    if tree.exists(path)? { tree.remove(path) } else { Ok(()) }
}

fn make_directory(tree: &mut VirtualTree, path: &str, mode: u16) -> Result<(), TreeError> {
    tree.put_directory(path, Attributes { mode, ..Attributes::default() })
}

#[cfg(test)]
mod tests {
    use workspace_state::Store;

    use super::*;

    fn tree(home: &tempfile::TempDir) -> VirtualTree {
        Store::open_or_create(home.path().join("store")).unwrap().empty_tree().unwrap()
    }

    #[test]
    fn an_empty_root_gets_everything() {
        let home = tempfile::tempdir().unwrap();
        let mut tree = tree(&home);
        add(&mut tree).unwrap();
        for name in MOUNT_POINTS {
            assert_eq!(tree.stat(name).unwrap().kind, NodeKind::Directory, "{name}");
        }
        assert_eq!(tree.stat(HOME).unwrap().xattrs, owned_by(1000, 1000));
        assert_eq!(tree.stat("var/tmp").unwrap().mode, 0o1777);
        assert_eq!(tree.read("etc/group").unwrap(), b"sandbox:x:1000:\n");
        let before = tree.tree_id().unwrap();
        add(&mut tree).unwrap();
        assert_eq!(tree.tree_id().unwrap(), before, "once is enough");
    }

    #[test]
    fn only_entries_that_nothing_can_be_mounted_on_are_replaced() {
        let home = tempfile::tempdir().unwrap();
        let mut tree = tree(&home);
        tree.symlink("tmp", "/var/tmp").unwrap();
        tree.write("proc", "a file").unwrap();
        tree.symlink("home", "/usr/home").unwrap();
        tree.symlink("etc/resolv.conf", "../run/resolv.conf").unwrap();
        tree.write("etc/hosts", "127.0.0.1 me").unwrap();
        tree.write("etc/passwd", "root:x:0:0::/root:/bin/sh").unwrap();
        tree.write("etc/group", "users:x:1000:\n").unwrap();
        add(&mut tree).unwrap();
        for name in ["tmp", "proc"] {
            assert_eq!(tree.stat(name).unwrap().kind, NodeKind::Directory, "{name}");
        }
        assert_eq!(tree.stat("home").unwrap().kind, NodeKind::Symlink);
        assert_eq!(tree.stat("etc/resolv.conf").unwrap().kind, NodeKind::File);
        assert_eq!(tree.read("etc/hosts").unwrap(), b"127.0.0.1 me");
        let passwd = String::from_utf8(tree.read("etc/passwd").unwrap()).unwrap();
        assert_eq!(passwd, "root:x:0:0::/root:/bin/sh\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n");
        assert_eq!(tree.read("etc/group").unwrap(), b"users:x:1000:\n", "the id exists");
    }

    #[test]
    fn a_root_without_a_real_etc_stays_without_one() {
        let home = tempfile::tempdir().unwrap();
        let mut tree = tree(&home);
        tree.symlink("etc", "/usr/etc").unwrap();
        add(&mut tree).unwrap();
        assert_eq!(tree.stat("etc").unwrap().kind, NodeKind::Symlink);
    }
}
