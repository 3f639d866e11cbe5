//! Differences between trees as patches in the format of git, for people and for `git apply`.
//!
//! Git knows symlinks and files with or without an execute bit. Other mode bits, extended attributes and
//! directories are described on lines between the patches, which git ignores.

use std::fmt::Write as _;
use std::io;

use imara_diff::Hunk;

use crate::diff::{Difference, DifferenceKind};
use crate::entry::{DirectoryNode, Entry, Node};
use crate::error::Result;
use crate::insight::{Content, LINE_DIFF_MAX, LineDiff};
use crate::node::NodeKind;
use crate::quote::quote_path;
use crate::tree::Tree;
use crate::tree_path::join;

/// Text of one difference, in the format of git.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Sections: none for a new or removed directory, two if a file becomes a symlink or the reverse, one for each file
    /// of a renamed directory, and otherwise one.
    pub sections: Vec<PatchSection>,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchSection {
    /// Lines with names, modes and renames; each ends with a newline.
    pub header: String,
    /// Change of the content.
    pub body: PatchBody,
}

/// The change of one file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchBody {
    /// The content is the same.
    Same,
    /// Hunks, with the two lines of file names before them.
    Text(Vec<u8>),
    /// A line that says that the files differ, because at least one of them is not text. `git apply` refuses such a
    /// patch.
    Binary(String),
    /// A line that says that the files differ, because at least one of them is too large to compare. `git apply`
    /// refuses such a patch.
    TooLarge(String),
}

impl Patch {
    /// Writes the patch. The patches of several differences can follow each other in one stream.
    pub fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        self.sections.iter().try_for_each(|section| section.write_to(out))
    }

    /// Returns the patch as bytes, which may not be UTF-8.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.write_to(&mut out) {
            Ok(()) => out,
            Err(_) => unreachable!("writing to a vector does not fail"),
        }
    }
}

impl PatchSection {
    /// Writes the section as a part of a patch.
    pub fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        out.write_all(self.header.as_bytes())?;
        match &self.body {
            PatchBody::Same => Ok(()),
            PatchBody::Text(text) => out.write_all(text),
            PatchBody::Binary(line) | PatchBody::TooLarge(line) => out.write_all(line.as_bytes()),
        }
    }
}

/// Formats one difference between `from` and `to` as a patch with `context` unchanged lines around each change.
///
/// `git apply` needs at least one line of context, or `--unidiff-zero`.
pub fn unified_diff(from: &Tree, to: &Tree, difference: &Difference, context: usize) -> Result<Patch> {
    let sections = PatchSections::new(from, to, difference.clone(), context);
    Ok(Patch { sections: sections.collect::<Result<_>>()? })
}

/// Returns the mode of an entry in a patch of git; `None` for a directory, which has none.
fn git_mode(entry: &Entry) -> Option<&'static str> {
    match entry.node.kind() {
        NodeKind::File if entry.node.mode() & 0o100 != 0 => Some("100755"),
        NodeKind::File => Some("100644"),
        NodeKind::Symlink => Some("120000"),
        NodeKind::Directory => None,
    }
}

/// Iterator over the sections of one difference. Formats each section on demand, because a renamed directory has one
/// for each file below it.
pub struct PatchSections {
    from: Tree,
    to: Tree,
    context: usize,
    /// Changes that are not formatted yet, the next one last.
    pending: Vec<Change>,
    /// Bytes of files that were read for comparison.
    compared: u64,
}

/// The change of one entry.
enum Change {
    Added {
        path: Vec<u8>,
        new: Entry,
    },
    Removed {
        path: Vec<u8>,
        old: Entry,
    },
    Changed {
        path: Vec<u8>,
        old: Entry,
        new: Entry,
    },
    Renamed {
        from: Vec<u8>,
        to: Vec<u8>,
        old: Entry,
        new: Entry,
    },
    /// Entries of a renamed directory, from `index` on.
    RenamedChildren {
        from: Vec<u8>,
        to: Vec<u8>,
        directory: DirectoryNode,
        /// Index of the first entry that was not read yet.
        index: u64,
    },
}

/// Number of entries of a renamed directory that are read in one batch.
const LIST_BATCH: u64 = 256;

impl PatchSections {
    /// Creates an iterator over the sections of a difference between two trees, with `context` lines around
    /// each change.
    pub fn new(from: &Tree, to: &Tree, difference: Difference, context: usize) -> Self {
        let Difference { path, kind, old, new } = difference;
        let pending = match (kind, old, new) {
            (DifferenceKind::Renamed { from }, Some(old), Some(new)) => {
                vec![Change::Renamed { from, to: path, old, new }]
            }
            (DifferenceKind::TypeChanged, Some(old), Some(new)) => {
                vec![Change::Added { path: path.clone(), new }, Change::Removed { path, old }]
            }
            (_, Some(old), Some(new)) => vec![Change::Changed { path, old, new }],
            (_, Some(old), None) => vec![Change::Removed { path, old }],
            (_, None, Some(new)) => vec![Change::Added { path, new }],
            (_, None, None) => Vec::new(),
        };
        Self { from: from.clone(), to: to.clone(), context, pending, compared: 0 }
    }

    /// Returns the number of bytes of files read so far for comparison.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// Formats a change. Returns `None` if there is nothing to format, or if the change of a directory was replaced by
    /// pending changes of its entries.
    fn section(&mut self, change: Change) -> Result<Option<PatchSection>> {
        match change {
            Change::Added { path, new } => self.added(&path, &new),
            Change::Removed { path, old } => self.removed(&path, &old),
            Change::Changed { path, old, new } => self.changed(&path, &old, &new).map(Some),
            Change::Renamed { from, to, new: Entry { node: Node::Directory(directory), .. }, .. } => {
                self.pending.push(Change::RenamedChildren { from, to, directory, index: 0 });
                Ok(None)
            }
            Change::Renamed { from, to, old, new } => Ok(Some(renamed(&from, &to, &old, &new))),
            Change::RenamedChildren { from, to, directory, index } => {
                self.expand_renamed_directory(from, to, directory, index)?;
                Ok(None)
            }
        }
    }

    /// Adds a batch of the entries of a renamed directory to the pending changes.
    fn expand_renamed_directory(
        &mut self,
        from: Vec<u8>,
        to: Vec<u8>,
        directory: DirectoryNode,
        index: u64,
    ) -> Result<()> {
        let entries = self.to.list_range(&directory, index, LIST_BATCH)?;
        // The directories are equal, so old and new entry are the same.
        let children: Vec<Change> = entries
            .into_iter()
            .rev()
            .map(|entry| Change::Renamed {
                from: join(&from, &entry.name),
                to: join(&to, &entry.name),
                old: entry.clone(),
                new: entry,
            })
            .collect();
        if children.len() as u64 == LIST_BATCH {
            self.pending.push(Change::RenamedChildren { from, to, directory, index: index + LIST_BATCH });
        }
        self.pending.extend(children);
        Ok(())
    }

    fn added(&mut self, path: &[u8], new: &Entry) -> Result<Option<PatchSection>> {
        let Some(mode) = git_mode(new) else { return Ok(None) };
        let header = format!("{}new file mode {mode}\n", git_line(path, path));
        let body = self.body(path, None, Some(new))?;
        Ok(Some(PatchSection { header, body }))
    }

    fn removed(&mut self, path: &[u8], old: &Entry) -> Result<Option<PatchSection>> {
        let Some(mode) = git_mode(old) else { return Ok(None) };
        let header = format!("{}deleted file mode {mode}\n", git_line(path, path));
        let body = self.body(path, Some(old), None)?;
        Ok(Some(PatchSection { header, body }))
    }

    fn changed(&mut self, path: &[u8], old: &Entry, new: &Entry) -> Result<PatchSection> {
        let body = self.body(path, Some(old), Some(new))?;
        let modes = mode_lines(old, new);
        let mut header = extra_lines(path, old, new);
        if !modes.is_empty() || body != PatchBody::Same {
            header.push_str(&git_line(path, path));
            header.push_str(&modes);
        }
        Ok(PatchSection { header, body })
    }

    /// Compares the content of an old and a new file; one of them is `None` if the file was added or removed.
    fn body(&mut self, path: &[u8], old: Option<&Entry>, new: Option<&Entry>) -> Result<PatchBody> {
        let (old_text, new_text) = (content(&self.from, old)?, content(&self.to, new)?);
        self.compared += compared_bytes(old) + compared_bytes(new);
        let names = (name_or_null(b"a", path, old), name_or_null(b"b", path, new));
        if let (Some(old), Some(new)) = (old_text.text(), new_text.text()) {
            let hunks = hunks(&LineDiff::new(old, new), self.context);
            if hunks.is_empty() {
                return Ok(PatchBody::Same);
            }
            let mut text = format!("--- {}\n+++ {}\n", with_tab(&names.0), with_tab(&names.1)).into_bytes();
            text.extend_from_slice(&hunks);
            return Ok(PatchBody::Text(text));
        }
        if let (Some(Node::File(old)), Some(Node::File(new))) =
            (old.map(|old| &old.node), new.map(|new| &new.node))
            && old.same_content(new)
        {
            return Ok(PatchBody::Same);
        }
        let binary = matches!(old_text, Content::Binary) || matches!(new_text, Content::Binary);
        let message = |what: &str| format!("{what} {} and {} differ\n", names.0, names.1);
        Ok(if binary {
            PatchBody::Binary(message("Binary files"))
        } else {
            PatchBody::TooLarge(message("Large files"))
        })
    }
}

impl Iterator for PatchSections {
    type Item = Result<PatchSection>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let change = self.pending.pop()?;
            if let Some(section) = self.section(change).transpose() {
                return Some(section);
            }
        }
    }
}

/// Formats the rename of a file or symlink with the same content.
fn renamed(from: &[u8], to: &[u8], old: &Entry, new: &Entry) -> PatchSection {
    let header = format!(
        "{}{}{}similarity index 100%\nrename from {}\nrename to {}\n",
        extra_lines(to, old, new),
        git_line(from, to),
        mode_lines(old, new),
        quote_path(from),
        quote_path(to),
    );
    PatchSection { header, body: PatchBody::Same }
}

/// Returns an upper bound on the bytes of an entry that are read to compare it.
fn compared_bytes(entry: Option<&Entry>) -> u64 {
    match entry.map(|entry| &entry.node) {
        Some(Node::File(file)) => file.size().min(LINE_DIFF_MAX),
        _ => 0,
    }
}

/// Returns the content as git sees it: the target of a symlink, nothing for a directory.
fn content(tree: &Tree, entry: Option<&Entry>) -> Result<Content> {
    match entry.map(|entry| &entry.node) {
        Some(Node::Symlink(link)) => Ok(Content::Text(link.target.clone())),
        _ => Content::of_file(tree, entry),
    }
}

/// Returns a path with the prefix that git gives to old (`a`) and new (`b`) files, quoted if necessary.
fn prefixed(prefix: &[u8], path: &[u8]) -> String {
    quote_path(&join(prefix, path)).into_owned()
}

/// Returns the name of a file in the header of hunks; `/dev/null` if there is no file.
fn name_or_null(prefix: &[u8], path: &[u8], entry: Option<&Entry>) -> String {
    entry.map_or_else(|| "/dev/null".to_owned(), |_| prefixed(prefix, path))
}

/// Appends a tab to a name with a space: patch readers would otherwise cut the name there.
fn with_tab(name: &str) -> String {
    let tab = if name.contains(' ') { "\t" } else { "" };
    format!("{name}{tab}")
}

/// Formats the first line of the patch of a file.
fn git_line(old: &[u8], new: &[u8]) -> String {
    format!("diff --git {} {}\n", prefixed(b"a", old), prefixed(b"b", new))
}

/// Formats a change of the mode as git does; empty if git knows no difference.
fn mode_lines(old: &Entry, new: &Entry) -> String {
    match (git_mode(old), git_mode(new)) {
        (Some(old), Some(new)) if old != new => format!("old mode {old}\nnew mode {new}\n"),
        _ => String::new(),
    }
}

/// Formats changes that git cannot express. Between two patches, git ignores lines that start with a space.
fn extra_lines(path: &[u8], old: &Entry, new: &Entry) -> String {
    let mut lines = String::new();
    let path = quote_path(if path.is_empty() { b"." } else { path });
    let (old_mode, new_mode) = (old.node.mode(), new.node.mode());
    if old_mode != new_mode && mode_lines(old, new).is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(lines, " mode change {old_mode:04o} => {new_mode:04o} {path}");
    }
    if xattrs(old) != xattrs(new) {
        let _ = writeln!(lines, " extended attributes change {path}");
    }
    lines
}

fn xattrs(entry: &Entry) -> Option<&crate::node::Xattrs> {
    match &entry.node {
        Node::File(file) => Some(&file.xattrs),
        Node::Directory(directory) => Some(&directory.xattrs),
        Node::Symlink(_) => None,
    }
}

/// Formats the changes of a line diff with their context. Changes with overlapping context share a hunk.
fn hunks(diff: &LineDiff<'_>, context: usize) -> Vec<u8> {
    let context = u32::try_from(context).unwrap_or(u32::MAX);
    let changes: Vec<Hunk> = diff.hunks().collect();
    let near = |a: &Hunk, b: &Hunk| b.before.start - a.before.end <= context.saturating_mul(2);
    let mut out = Vec::new();
    for group in changes.chunk_by(near) {
        write_hunk(&mut out, diff, group, context);
    }
    out
}

fn write_hunk(out: &mut Vec<u8>, diff: &LineDiff<'_>, group: &[Hunk], context: u32) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let context_before = first.before.start.min(first.after.start).min(context);
    let context_after = (diff.old_lines() as u32 - last.before.end).min(context);
    let old = first.before.start - context_before..last.before.end + context_after;
    let new = first.after.start - context_before..last.after.end + context_after;
    out.extend_from_slice(format!("@@ -{} +{} @@\n", range(&old), range(&new)).as_bytes());
    let mut next = old.start;
    for change in group {
        (next..change.before.start).for_each(|line| write_line(out, b' ', diff.old_line(line)));
        change.before.clone().for_each(|line| write_line(out, b'-', diff.old_line(line)));
        change.after.clone().for_each(|line| write_line(out, b'+', diff.new_line(line)));
        next = change.before.end;
    }
    (next..old.end).for_each(|line| write_line(out, b' ', diff.old_line(line)));
}

/// Formats a range counted from 1; an empty range is named by the line before it.
fn range(lines: &std::ops::Range<u32>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        len => format!("{},{len}", lines.start + 1),
    }
}

fn write_line(out: &mut Vec<u8>, sign: u8, line: &[u8]) {
    out.push(sign);
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}
