//! Resolution of a review in an editor.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use workspace_api::reviews::ReviewDetails;
use workspace_merge::{ConflictMarkers, DiffLimits, Style, TextMerge};
use workspace_state::unquote_path;

use super::read_text;
use crate::args::Server;
use crate::error::{CommandError, Result, io_hint};
use crate::remote::with_client;

/// Usual length of a conflict marker in characters.
const MARKER_SIZE: usize = 7;
/// Characters of conflict markers that no text may be left with.
const MARKER_CHARACTERS: [u8; 3] = *b"<|>";

/// Edited file.
pub(super) struct Edited {
    pub(super) content: Vec<u8>,
    /// Version of the head that the file was made from.
    pub(super) version: String,
    directory: TempDir,
    file: PathBuf,
}

impl Edited {
    /// Keeps the file, and adds its path to an error, so that the work is not lost.
    pub(super) fn keep(self, error: CommandError) -> CommandError {
        kept(self.directory, &self.file, error)
    }
}

/// Lets the user edit the file of a review with conflict markers.
pub(super) fn edit(server: &Server, path: &str) -> Result<Edited> {
    let (details, versions) = with_client(server, async |client| {
        let details: ReviewDetails = client.get(path).await?;
        let mut versions = Vec::new();
        for (side, version) in [("base", &details.base), ("head", &details.head), ("theirs", &details.theirs)]
        {
            versions.push(read_text(client, path, side, version).await?);
        }
        Ok((details, versions))
    })?;
    let [Some(base), Some(head), Some(theirs)] = versions.as_slice() else {
        return Err(CommandError::failed(format!(
            "`{}` is no text file in every version",
            details.review.path
        ))
        .hint("resolve it with --ours, --theirs or --file"));
    };
    let marker_size = marker_size(&[base, head, theirs]);
    let marked = with_markers(base, head, theirs, marker_size).ok_or_else(|| {
        CommandError::failed("the versions have too many lines to compare")
            .hint("resolve it with --ours, --theirs or --file")
    })?;
    let directory = tempfile::tempdir().map_err(|error| cannot("create a temporary directory", &error))?;
    let file = directory.path().join(file_name(&details.review.path));
    fs::write(&file, &marked).map_err(|error| cannot("write a temporary file", &error))?;
    run_editor(&file)?;
    let content = fs::read(&file).map_err(|error| cannot("read the edited file", &error))?;
    if content == marked {
        return Err(CommandError::failed("the file was not changed, so nothing was resolved")
            .hint("resolve the conflicts and save the file, or use --ours or --theirs"));
    }
    if let Some(line) = marker_line(&content, marker_size) {
        let error =
            CommandError::failed(format!("line {line} is a conflict marker, so nothing was resolved"));
        return Err(kept(directory, &file, error));
    }
    Ok(Edited { content, version: details.head.version, directory, file })
}

fn kept(directory: TempDir, file: &std::path::Path, error: CommandError) -> CommandError {
    // The directory is not removed from here on.
    let _ = directory.keep();
    error.hint(format!("your text is in `{}`: use it with --file", file.display()))
}

fn cannot(action: &str, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!("cannot {action}: {error}")).hint(io_hint(error))
}

/// Returns the last name of a path of the server, which an editor uses to find the type of the file.
fn file_name(path: &str) -> String {
    let path = unquote_path(path).unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match str::from_utf8(name) {
        Ok(name) if !name.is_empty() && !name.starts_with('-') && name != "." && name != ".." => {
            name.to_owned()
        }
        _ => "file".to_owned(),
    }
}

/// Returns a text with conflict markers. If nothing conflicts, every difference is marked: a change that needs a review
/// is no conflict. `None` if the texts are too large.
fn with_markers(base: &[u8], head: &[u8], theirs: &[u8], marker_size: usize) -> Option<Vec<u8>> {
    let mut merge = TextMerge::new(base, head, theirs, DiffLimits::default()).ok()?;
    if merge.is_clean() {
        merge = merge.with_all_in_conflict();
    }
    let markers = ConflictMarkers { ours: "head", base: "base", theirs: "agent", marker_size };
    Some(merge.render(Style::Zdiff3, &markers).0)
}

/// Returns a length of markers such that no line of the texts looks like one.
fn marker_size(texts: &[&[u8]]) -> usize {
    let mut size = MARKER_SIZE;
    while texts.iter().any(|text| marker_line(text, size).is_some()) {
        size += 1;
    }
    size
}

/// Returns the number of the first line that starts with a conflict marker, counted from 1.
fn marker_line(text: &[u8], size: usize) -> Option<usize> {
    let is_marker = |line: &[u8]| {
        let start = line.get(..size);
        start.is_some_and(|start| MARKER_CHARACTERS.iter().any(|sign| start.iter().all(|byte| byte == sign)))
    };
    text.split(|byte| *byte == b'\n').position(is_marker).map(|line| line + 1)
}

/// Runs the editor as git does: its name may have arguments.
fn run_editor(file: &std::path::Path) -> Result<()> {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor = named.into_iter().find(|editor| !editor.trim().is_empty());
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$@\"")).arg(&editor).arg(file).status();
    let hint = "set EDITOR to an editor, or resolve with --file";
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let message = format!("the editor `{editor}` failed ({status}), so nothing was resolved");
            Err(CommandError::failed(message).hint(hint))
        }
        Err(error) => Err(CommandError::failed(format!("cannot start `{editor}`: {error}")).hint(hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_longer_than_those_of_the_text() {
        assert_eq!(marker_size(&[b"a\n", b"<<<<<<< x\n"]), 8);
        assert_eq!(marker_size(&[b"=======\n"]), 7);
        let marked = with_markers(b"a\n", b"b\n", b"c\n", 7).unwrap();
        assert_eq!(marker_line(&marked, 7), Some(1));
        assert_eq!(marker_line(b"x\n>>>>>>> agent\n", 7), Some(2));
    }

    #[test]
    fn a_change_that_does_not_conflict_is_marked() {
        let marked = String::from_utf8(with_markers(b"a\n", b"a\n", b"b\n", 7).unwrap()).unwrap();
        assert!(marked.contains("<<<<<<< head\na\n") && marked.contains("b\n>>>>>>> agent\n"), "{marked}");
    }

    #[test]
    fn names_of_files_are_safe() {
        assert_eq!(file_name("docs/index.md"), "index.md");
        assert_eq!(file_name("a/-rf"), "file");
        assert_eq!(file_name("\"a\\377\""), "file");
        assert_eq!(file_name(".."), "file");
    }
}
