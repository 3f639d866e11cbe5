//! Parses git objects: commits and trees. Blobs are passed on as streams.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use workspace_state::Timestamp;

use super::git::{CatFile, FSCK_HINT, ObjectKind};
use crate::error::{CommandError, Result};

/// Maximum number of tree entries in the cache.
const CACHED_ENTRIES_MAX: usize = 1 << 20;

/// A parsed commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) tree: String,
    /// `Name <address>`
    pub(super) author: String,
    /// Time of the committer, not that of the author.
    pub(super) time: Timestamp,
    pub(super) message: String,
}

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitEntry {
    pub(super) mode: u32,
    pub(super) name: Vec<u8>,
    pub(super) id: String,
}

/// Kind of a tree entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File {
        mode: u16,
    },
    Symlink,
    Tree,
    /// Not imported; the reason.
    Skipped(&'static str),
}

impl GitEntry {
    pub(super) fn kind(&self) -> EntryKind {
        if self.name.eq_ignore_ascii_case(b".git") {
            // Git never creates one; a checkout of it could run hooks.
            return EntryKind::Skipped("an entry named .git");
        }
        match self.mode & 0o170_000 {
            0o040_000 => EntryKind::Tree,
            0o120_000 => EntryKind::Symlink,
            0o160_000 => EntryKind::Skipped("a submodule"),
            0o100_000 if self.mode & 0o111 != 0 => EntryKind::File { mode: 0o755 },
            0o100_000 => EntryKind::File { mode: 0o644 },
            _ => EntryKind::Skipped("an entry of an unknown kind"),
        }
    }
}

/// Objects of a repository. Trees are cached, because each is compared with its successor.
pub(super) struct Objects {
    cat_file: CatFile,
    trees: HashMap<String, Arc<[GitEntry]>>,
    /// Number of entries of all cached trees, and of the trees themselves.
    cached_entries: usize,
}

impl Objects {
    pub(super) fn new(cat_file: CatFile) -> Self {
        Self { cat_file, trees: HashMap::new(), cached_entries: 0 }
    }

    pub(super) fn commit(&mut self, id: &str) -> Result<Commit> {
        let bytes = self.cat_file.read(id, ObjectKind::Commit)?;
        parse_commit(&bytes).ok_or_else(|| malformed("commit", id))
    }

    pub(super) fn tree(&mut self, id: &str) -> Result<Arc<[GitEntry]>> {
        if let Some(tree) = self.trees.get(id) {
            return Ok(Arc::clone(tree));
        }
        let bytes = self.cat_file.read(id, ObjectKind::Tree)?;
        let tree: Arc<[GitEntry]> =
            parse_tree(&bytes, id.len() / 2).ok_or_else(|| malformed("tree", id))?.into();
        if self.cached_entries > CACHED_ENTRIES_MAX {
            self.trees.clear();
            self.cached_entries = 0;
        }
        self.cached_entries += tree.len() + 1;
        self.trees.insert(id.to_owned(), Arc::clone(&tree));
        Ok(tree)
    }

    pub(super) fn blob<T>(
        &mut self,
        id: &str,
        take: impl FnOnce(u64, &mut dyn Read) -> Result<T>,
    ) -> Result<T> {
        self.cat_file.stream(id, ObjectKind::Blob, take)
    }
}

fn malformed(what: &str, id: &str) -> CommandError {
    CommandError::failed(format!("{what} {id} in the repository is malformed")).hint(FSCK_HINT)
}

fn parse_commit(bytes: &[u8]) -> Option<Commit> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n");
    let (head, message) = match end {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &[][..]),
    };
    let field = |name: &[u8]| {
        let mut lines = head.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(b" "))
    };
    Some(Commit {
        tree: std::str::from_utf8(field(b"tree")?).ok()?.to_owned(),
        author: parse_person(field(b"author")?)?.0,
        time: parse_person(field(b"committer")?)?.1,
        message: String::from_utf8_lossy(message).trim_end().to_owned(),
    })
}

/// Parses `Name <address> SECONDS ZONE`.
fn parse_person(bytes: &[u8]) -> Option<(String, Timestamp)> {
    let text = String::from_utf8_lossy(bytes);
    let end = text.rfind('>')? + 1;
    let seconds: i64 = text[end..].split_whitespace().next().unwrap_or("0").parse().ok()?;
    Some((text[..end].to_owned(), Timestamp(seconds.saturating_mul(1_000_000_000))))
}

/// Parses entries of the form `MODE NAME\0ID`.
fn parse_tree(mut bytes: &[u8], id_len: usize) -> Option<Vec<GitEntry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ')?;
        let end = space + 1 + bytes[space + 1..].iter().position(|byte| *byte == 0)?;
        let mode = u32::from_str_radix(std::str::from_utf8(&bytes[..space]).ok()?, 8).ok()?;
        let id = bytes.get(end + 1..end + 1 + id_len)?;
        let name = bytes[space + 1..end].to_vec();
        if !is_valid_name(&name) {
            return None;
        }
        entries.push(GitEntry { mode, name, id: id.iter().map(|byte| format!("{byte:02x}")).collect() });
        bytes = &bytes[end + 1 + id_len..];
    }
    Some(entries)
}

/// Returns true for a valid name. A crafted tree could contain others, to escape the directory.
fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= 255 && name != b"." && name != b".." && !name.contains(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_parsed() {
        let text =
            b"tree abc\nparent def\nauthor A B <a@b> 12 +0100\ncommitter C <> -7 +0000\n\nsubject\n\nbody\n";
        let commit = parse_commit(text).unwrap();
        assert_eq!(commit.tree, "abc");
        assert_eq!(commit.author, "A B <a@b>");
        assert_eq!(commit.time, Timestamp(-7_000_000_000));
        assert_eq!(commit.message, "subject\n\nbody");
        assert_eq!(parse_commit(b"tree abc\n"), None);
    }

    #[test]
    fn trees_are_parsed_and_unsafe_names_rejected() {
        let entry = |name: &[u8]| [b"100644 ", name, b"\0", &[0xab; 20]].concat();
        let tree = parse_tree(&[entry(b"a"), entry(b"\xff")].concat(), 20).unwrap();
        assert_eq!(tree[0], GitEntry { mode: 0o100_644, name: b"a".to_vec(), id: "ab".repeat(20) });
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc"] {
            assert_eq!(parse_tree(&entry(name), 20), None, "{name:?}");
        }
        assert_eq!(parse_tree(&entry(b"a")[..20], 20), None);
    }

    #[test]
    fn kinds_follow_from_modes() {
        let kind = |mode, name: &[u8]| GitEntry { mode, name: name.to_vec(), id: String::new() }.kind();
        assert_eq!(kind(0o100_644, b"a"), EntryKind::File { mode: 0o644 });
        assert_eq!(kind(0o100_664, b"a"), EntryKind::File { mode: 0o644 });
        assert_eq!(kind(0o100_755, b"a"), EntryKind::File { mode: 0o755 });
        assert_eq!(kind(0o120_000, b"a"), EntryKind::Symlink);
        assert_eq!(kind(0o040_000, b"a"), EntryKind::Tree);
        assert!(matches!(kind(0o160_000, b"a"), EntryKind::Skipped(_)));
        assert!(matches!(kind(0o040_000, b".GIT"), EntryKind::Skipped(_)));
    }
}
