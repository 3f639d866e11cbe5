//! Stream of `git fast-import` for the sequences of a project.

use std::io::{self, Write};

use workspace_api::diff::{ChangeKind, Diff, Difference};
use workspace_api::projects::{Operation, Project};
use workspace_api::snapshots::{EntryKind, TreeListing};
use workspace_state::{
    FileNode, ImportOptions, NewSnapshot, NoProgress, Node, Store, Tree, import_tar, quote_path, unquote_path,
};

use super::git::quote;
use super::import::temporary_directory;
use super::routes::project_path;
use crate::error::{CommandError, Result, io_hint};
use crate::remote::files::download;
use crate::remote::{Client, percent_encode};

/// Maximum number of changed files that are read one by one. More are read as an archive of all files.
const CHANGES_MAX: usize = 10_000;
/// Number of bytes of a file that are read from a store at a time.
const PIECE_SIZE: u64 = 1 << 20;

/// Writes commits to a branch.
pub(super) struct CommitWriter<'a> {
    pub(super) client: &'a Client,
    pub(super) project: &'a Project,
    /// Full name of the branch.
    pub(super) branch: &'a str,
    /// Commit before the next one, if git does not know it from this stream.
    pub(super) parent: Option<String>,
}

/// Writes the commit of an operation, with the files that it changed.
pub(super) async fn write_commit(
    writer: &mut CommitWriter<'_>,
    out: &mut dyn Write,
    operation: &Operation,
) -> Result<()> {
    let header = header(writer.project, writer.branch, operation, writer.parent.take().as_deref());
    send(out, &header)?;
    let (client, project) = (writer.client, project_path(&writer.project.id));
    let sequence = operation.sequence;
    let before = sequence.saturating_sub(1);
    let route = format!("{project}/diff?from={before}&to={sequence}&limit={CHANGES_MAX}");
    let diff: Diff = client.get(&route).await?;
    // Directories are renamed with all their files, which the differences do not list.
    if sequence == 1 || diff.truncated || diff.entries.iter().any(is_renamed_directory) {
        return write_all_files(client, &project, sequence, out).await;
    }
    for entry in &diff.entries {
        let removed = match entry.change {
            ChangeKind::Removed | ChangeKind::TypeChanged => Some(&entry.path),
            _ => entry.renamed_from.as_ref(),
        };
        if let Some(removed) = removed {
            send(out, &[b"D ", &quote(&unquoted(removed))[..], b"\n"].concat())?;
        }
    }
    for entry in &diff.entries {
        write_entry(client, &project, sequence, entry, out).await?;
    }
    send(out, b"\n")
}

fn is_renamed_directory(entry: &Difference) -> bool {
    entry.change == ChangeKind::Renamed
        && entry.new.as_ref().is_some_and(|side| side.kind == EntryKind::Directory)
}

/// Returns the beginning of a commit. The trailers are a paragraph of their own: git reads only those of the last one,
/// so that no message can contain them.
fn header(project: &Project, branch: &str, operation: &Operation, parent: Option<&str>) -> Vec<u8> {
    let mut message = match operation.message.trim() {
        "" => format!("{} by {}", operation.operation, operation.author),
        message => message.to_owned(),
    };
    message.push_str(&format!(
        "\n\nWorkspace-Project: {}\nWorkspace-Sequence: {}\nWorkspace-Snapshot: {}\n",
        project.id,
        operation.sequence,
        operation.snapshot.as_deref().unwrap_or_default()
    ));
    let author = person(&operation.author);
    let recorded = seconds(&operation.time);
    let authored = operation.commit_time.as_deref().map_or(recorded, seconds);
    let mut header = format!(
        "commit {branch}\nauthor {author} {authored} +0000\ncommitter {author} {recorded} +0000\ndata {}\n{message}\n",
        message.len()
    );
    if let Some(parent) = parent {
        header.push_str(&format!("from {parent}^0\n"));
    }
    header.into_bytes()
}

/// Returns an author in the form of git, `Name <address>`, which may be the name of an agent.
fn person(author: &str) -> String {
    let clean = |text: &str| -> String {
        let is_allowed = |character: &char| !character.is_control() && !"<>".contains(*character);
        text.chars().filter(is_allowed).collect::<String>().trim().to_owned()
    };
    let (name, address) = match author.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((name, address)) => (clean(name), clean(address)),
        None => (clean(author), String::new()),
    };
    format!("{} <{address}>", if name.is_empty() { "unknown" } else { &name })
}

/// Returns a time of the API in seconds since 1970. Git has no negative times.
fn seconds(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().map_or(0, |time| time.as_second().max(0))
}

/// Writes a file or symlink that a sequence added or changed.
async fn write_entry(
    client: &Client,
    project: &str,
    sequence: u64,
    entry: &Difference,
    out: &mut dyn Write,
) -> Result<()> {
    let Some(new) = &entry.new else { return Ok(()) };
    let path = unquoted(&entry.path);
    if new.kind == EntryKind::Directory || !can_export(&path) {
        return Ok(());
    }
    let encoded = percent_encode(&path);
    if new.kind == EntryKind::Symlink {
        let route = format!("{project}/tree/{encoded}?at={sequence}");
        let listing: TreeListing = client.get(&route).await?;
        let target = listing.entry.target.unwrap_or_default();
        return write_blob(out, "120000", &path, &unquoted(&target));
    }
    send(out, &file_header(git_mode(&new.mode), &path, new.size))?;
    let mut left = new.size;
    download(client, &format!("{project}/files/{encoded}?at={sequence}"), async |data| {
        left = left.checked_sub(data.len() as u64).ok_or_else(|| changed_size(&path))?;
        send(out, data)
    })
    .await?;
    if left > 0 {
        return Err(changed_size(&path));
    }
    send(out, b"\n")
}

fn changed_size(path: &[u8]) -> CommandError {
    CommandError::failed(format!("the server sent another size of {} than it announced", quote_path(path)))
        .hint("run the command again")
}

/// Replaces all files of the commit by those of a sequence.
async fn write_all_files(client: &Client, project: &str, sequence: u64, out: &mut dyn Write) -> Result<()> {
    send(out, b"deleteall\n")?;
    let directory = temporary_directory()?;
    let failed = |error: io::Error| {
        CommandError::failed(format!("cannot write an archive: {error}")).hint(io_hint(&error))
    };
    let mut archive = tempfile::tempfile_in(directory.path()).map_err(failed)?;
    download(client, &format!("{project}/archive?at={sequence}"), async |data| {
        archive.write_all(data).map_err(failed)
    })
    .await?;
    io::Seek::rewind(&mut archive).map_err(failed)?;
    let store = Store::open_or_create(directory.path().join("store"))?;
    let options = ImportOptions { keep_set_id: true, ..ImportOptions::default() };
    let report = import_tar(&store, &mut archive, NewSnapshot::default(), &options, &NoProgress)?;
    let tree = Tree::of_snapshot(&store, &report.snapshot)?;
    let mut files = Vec::new();
    tree.walk(&mut |path, entry| {
        if !matches!(entry.node, Node::Directory(_)) {
            files.push((path.to_vec(), entry.node.clone()));
        }
        Ok(())
    })?;
    for (path, node) in files.iter().filter(|(path, _)| can_export(path)) {
        match node {
            Node::File(file) => write_stored_file(&tree, path, file, out)?,
            Node::Symlink(link) => write_blob(out, "120000", path, &link.target)?,
            Node::Directory(_) => {}
        }
    }
    send(out, b"\n")
}

fn write_stored_file(tree: &Tree, path: &[u8], file: &FileNode, out: &mut dyn Write) -> Result<()> {
    let (size, mode) = (file.size(), if file.mode & 0o111 == 0 { "100644" } else { "100755" });
    send(out, &file_header(mode, path, size))?;
    let mut offset = 0;
    while offset < size {
        let piece = tree.read_range(file, offset, PIECE_SIZE)?;
        if piece.is_empty() {
            return Err(changed_size(path));
        }
        offset += piece.len() as u64;
        send(out, &piece)?;
    }
    send(out, b"\n")
}

/// Returns false for a path that git refuses, and a checkout of which could run hooks.
fn can_export(path: &[u8]) -> bool {
    !path.split(|byte| *byte == b'/').any(|name| name.eq_ignore_ascii_case(b".git"))
}

fn git_mode(octal: &str) -> &'static str {
    let is_executable = u32::from_str_radix(octal, 8).is_ok_and(|mode| mode & 0o111 != 0);
    if is_executable { "100755" } else { "100644" }
}

fn file_header(mode: &str, path: &[u8], size: u64) -> Vec<u8> {
    [format!("M {mode} inline ").as_bytes(), &quote(path), format!("\ndata {size}\n").as_bytes()].concat()
}

fn write_blob(out: &mut dyn Write, mode: &str, path: &[u8], content: &[u8]) -> Result<()> {
    send(out, &[&file_header(mode, path, content.len() as u64)[..], content, b"\n"].concat())
}

fn unquoted(path: &str) -> Vec<u8> {
    unquote_path(path).map_or_else(|| path.as_bytes().to_vec(), std::borrow::Cow::into_owned)
}

fn send(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes).map_err(|error| {
        CommandError::failed(format!("git ended early: {error}")).hint("run the command again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_cannot_break_out_of_their_line() {
        assert_eq!(person("writer"), "writer <>");
        assert_eq!(person("Ada Lovelace <ada@example.org>"), "Ada Lovelace <ada@example.org>");
        assert_eq!(person("a\nfrom x <b> c"), "afrom x b c <>");
        assert_eq!(person("<>"), "unknown <>");
    }

    #[test]
    fn git_directories_are_not_exported() {
        assert!(can_export(b"a/.github/b"));
        for path in [&b".git/config"[..], b"a/.GIT/hooks/x", b".git"] {
            assert!(!can_export(path));
        }
    }
}
