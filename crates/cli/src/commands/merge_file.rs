//! `workspace merge-file`

mod driver;
mod merged_file;
mod replace;

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use workspace_merge::{
    Choice, Conflict, ConflictLocation, Decision, FileMerge, FileSettings, Input, OnConflict, Side,
    Strategies, UnknownStrategy, Versions, choices, conflict_sides, merge_file,
};
use workspace_state::Timestamp;

pub(crate) use self::driver::mark_unmerged_file;
use self::merged_file::{MergedFile, conflict_markers};
use self::replace::{check_replaceable, write};
use super::merge_rules;
use crate::args::{FileType, MergeFile};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::text::print_stderr;

/// Maximum number of conflicts in the exit status: larger statuses are errors.
const CONFLICTS_MAX: usize = 127;

/// OURS, BASE and THEIRS.
const VERSIONS: usize = 3;

/// Report as `--json` prints it.
#[derive(Serialize)]
struct Report<'a> {
    path: &'a str,
    /// Null if only one side changed the file, or both made the same changes.
    strategy: Option<&'static str>,
    /// Number of unresolved conflicts.
    conflicts: usize,
    conflict: Option<&'a Conflict>,
    /// Decision of the conflict rule; null if the conflict is unresolved.
    decided: Option<Decision>,
    /// Possible resolutions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<Choice>,
    /// Result, with `-p`; `None` if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

pub(crate) fn run(context: &mut Context, args: &MergeFile) -> Result<Outcome> {
    let merged = merge(context, args).and_then(|outcome| context.output.flush().map(|()| outcome));
    merged.map_err(|error| {
        let error = error.with_not_merged_status();
        if !error.is_not_text() && driver::is_temporary(&args.ours) {
            return error.hint(
                "`git merge --abort` (or that of the command you ran) undoes a merge that was left in progress",
            );
        }
        error
    })
}

fn merge(context: &mut Context, args: &MergeFile) -> Result<Outcome> {
    if !args.stdout {
        check_replaceable(&args.ours)?;
    }
    let (ours, base, theirs) = (read(&args.ours)?, read(&args.base)?, read(&args.theirs)?);
    // Read before `driver::mark`, which writes OURS and so changes its modification time.
    let times = (modification_time(&args.ours)?, modification_time(&args.theirs)?);
    // Marked as a conflict until the result is written; see `driver`.
    let is_marked = !args.stdout
        && driver::is_temporary(&args.ours)
        && driver::mark(&args.ours, &ours, &theirs, &conflict_markers(args))?;
    if args.labels.len() > VERSIONS {
        return Err(CommandError::usage("at most three labels are allowed, one for each version"));
    }
    let path = args.path.as_deref().unwrap_or(&args.ours).to_string_lossy();
    // Git gives an empty base for a file that both sides added.
    let is_added = base.is_empty() && !ours.is_empty() && !theirs.is_empty();
    let versions = Versions { base: (!is_added).then_some(&base[..]), ours: &ours, theirs: &theirs };
    let mut input = Input::new(&path, versions);
    (input.our_author.priority, input.their_author.priority) = merge_rules::priorities(&args.rules);
    (input.our_author.time, input.their_author.time) = times;
    let (strategies, settings) = (
        Strategies::default(),
        settings(args, &merge_rules::read_rules(&args.rules)?.settings(path.as_bytes())),
    );
    let unknown_strategy = |error: UnknownStrategy| CommandError::failed(error.to_string());
    let merged = merge_file(&strategies, &settings, &input).map_err(unknown_strategy)?;
    if merged.strategy == Some("binary") && settings.strategy.is_none() && !merged.is_resolved() {
        let failed = CommandError::not_text(format!("`{path}` is not text and cannot be merged"));
        return Err(
            failed.hint("take one side with `--ours` or `--theirs`, or keep OURS with `--type binary`")
        );
    }
    let MergedFile { content, conflicts } =
        MergedFile::new(args, &merged, &input, || conflict_sides(&strategies, &settings, &input))
            .map_err(unknown_strategy)?;
    if args.stdout && !context.output.is_json() {
        context.output.bytes(&content)?;
    } else if !args.stdout && (is_marked || content != ours) {
        write(&args.ours, &content)?;
    }
    if context.output.is_json() {
        let content = args.stdout.then(|| as_text(&content)).flatten();
        let (strategy, conflict, decided) = (merged.strategy, merged.conflict.as_ref(), merged.decided);
        let choices = if conflict.is_some() {
            choices(&strategies, &settings, &input).map_err(unknown_strategy)?
        } else {
            Vec::new()
        };
        context.output.record(&Report {
            path: &path,
            strategy,
            conflicts,
            conflict,
            decided,
            choices,
            content,
        })?;
    } else if !args.quiet && !args.ours_wins && !args.theirs_wins && !args.union {
        print_conflict(&path, &merged);
    }
    if args.union && !args.quiet && !merged.is_resolved() {
        warn_of_union(&path, merged.strategy);
    }
    Ok(Outcome::Exit(u8::try_from(conflicts.min(CONFLICTS_MAX)).unwrap_or(u8::MAX)))
}

/// Returns the merge settings of the file: command line options override those of its path.
fn settings(args: &MergeFile, by_path: &FileSettings) -> FileSettings {
    let strategy = match args.file_type {
        FileType::Auto => by_path.strategy.as_deref(),
        FileType::Text => Some("text"),
        FileType::Json => Some("json"),
        FileType::Notebook => Some("notebook"),
        FileType::Yaml => Some("yaml"),
        FileType::Toml => Some("toml"),
        FileType::Crdt => Some("crdt"),
        FileType::Log => Some("log"),
        FileType::Binary => Some("binary"),
    };
    let on_conflict = match (args.ours_wins, args.theirs_wins) {
        (true, _) => OnConflict::Ours,
        (_, true) => OnConflict::Theirs,
        _ => by_path.on_conflict,
    };
    FileSettings { strategy: strategy.map(str::to_owned), on_conflict, ..by_path.clone() }
}

/// Returns the modification time of a file in nanoseconds since 1970, for rules that depend on it.
fn modification_time(path: &Path) -> Result<i64> {
    let modified = fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .map_err(|error| read_error(path, &error))?;
    Ok(Timestamp::from(modified).0)
}

/// Returns content as text; `None` if it is binary.
fn as_text(content: &[u8]) -> Option<&str> {
    str::from_utf8(content).ok().filter(|text| !text.contains('\0'))
}

/// Warns that a file with the lines of both sides may not be a valid document.
fn warn_of_union(path: &str, strategy: Option<&str>) {
    if let Some(kind @ ("json" | "notebook" | "yaml" | "toml" | "crdt")) = strategy {
        print_stderr(&format!(
            "warning: `{path}` now has the lines of both sides, and may not be valid {kind}"
        ));
    }
}

fn print_conflict(path: &str, merged: &FileMerge) {
    let Some(conflict) = &merged.conflict else { return };
    let mut line = format!("conflict in {path}: {}", conflict.reason);
    if let Some(strategy) = merged.strategy.filter(|strategy| *strategy != conflict.strategy) {
        line += &format!(" (it cannot be parsed or written as {strategy})");
    }
    match merged.decided {
        Some(Decision { winner: Side::Ours, .. }) => line += ", ours was taken",
        Some(Decision { winner: Side::Theirs, .. }) => line += ", theirs was taken",
        None => {}
    }
    print_stderr(&line);
    for location in &conflict.locations {
        match location {
            ConflictLocation::Value(value) if value.path.is_empty() => print_stderr("  at the root"),
            ConflictLocation::Value(value) => print_stderr(&format!("  at {}", value.path)),
            ConflictLocation::Lines(_) => {}
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| read_error(path, &error))
}

fn read_error(path: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot read {}: {error}", path.display())).hint(io_hint(error))
}
