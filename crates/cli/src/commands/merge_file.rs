//! `workspace merge-file`

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use workspace_merge::{
    Choice, Conflict, Decided, Effort, Favor, FileMerge, FileRule, Input, Labels, OnConflict, Place,
    Strategies, Style, TextMerge, UnknownStrategy, Versions, choices, merge_file,
};
use workspace_state::Timestamp;

use super::merge_rules;
use crate::args::{ConflictStyle, FileType, MergeFile};
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result, io_hint};
use crate::text::print_stderr;

/// More conflicts than this are told as this many: more would be errors.
const COUNTED: usize = 127;

/// What is told with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    path: &'a str,
    /// Null if only one side changed it, or both did the same.
    strategy: Option<&'static str>,
    /// How many are left.
    conflicts: usize,
    conflict: Option<&'a Conflict>,
    decided: Option<Decided>,
    /// What the conflict would become.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<Choice>,
    /// The result, with `-p`; missing if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

pub(crate) fn run(context: &mut Context, args: &MergeFile) -> Result<Outcome> {
    merge(context, args).map_err(CommandError::not_merged)
}

fn merge(context: &mut Context, args: &MergeFile) -> Result<Outcome> {
    if !args.stdout {
        check_replaceable(&args.ours)?;
    }
    let (ours, base, theirs) = (read(&args.ours)?, read(&args.base)?, read(&args.theirs)?);
    let path = args.path.as_deref().unwrap_or(&args.ours).to_string_lossy();
    // For git, what both sides added was empty before.
    let is_added = base.is_empty() && !ours.is_empty() && !theirs.is_empty();
    let versions = Versions { base: (!is_added).then_some(&base[..]), ours: &ours, theirs: &theirs };
    let mut input = Input::new(&path, versions);
    (input.ours.priority, input.theirs.priority) = merge_rules::priorities(&args.rules);
    (input.ours.time, input.theirs.time) = (written(&args.ours)?, written(&args.theirs)?);
    let (strategies, rule) =
        (Strategies::default(), rule(args, merge_rules::policy(&args.rules)?.rule(&path)));
    let unknown = |error: UnknownStrategy| CommandError::failed(error.to_string());
    let merged = merge_file(&strategies, &rule, &input).map_err(unknown)?;
    if merged.strategy == Some("binary") && rule.strategy.is_none() && !merged.is_settled() {
        let failed = CommandError::failed(format!("`{path}` is no text and cannot be merged"));
        return Err(
            failed.hint("take one side with `--ours` or `--theirs`, or leave OURS with `--type binary`")
        );
    }
    let (content, conflicts) = result(args, &merged, &versions);
    if args.stdout && !context.output.json() {
        context.output.bytes(&content)?;
    } else if !args.stdout && content != ours {
        write(&args.ours, &content)?;
    }
    if context.output.json() {
        let content = args.stdout.then(|| str::from_utf8(&content).ok()).flatten();
        let (strategy, conflict, decided) = (merged.strategy, merged.conflict.as_ref(), merged.decided);
        let choices = if conflict.is_some() {
            choices(&strategies, &rule, &input).map_err(unknown)?
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
    } else if !args.quiet && conflicts > 0 {
        tell(&path, &merged);
    }
    if args.union && !args.quiet && !merged.is_settled() {
        warn_of_union(&path, merged.strategy);
    }
    Ok(Outcome::Exit(u8::try_from(conflicts.min(COUNTED)).unwrap_or(u8::MAX)))
}

/// What is typed counts more than what a policy says.
fn rule(args: &MergeFile, by_policy: &FileRule) -> FileRule {
    let strategy = match args.kind {
        FileType::Auto => by_policy.strategy.as_deref(),
        FileType::Text => Some("text"),
        FileType::Json => Some("json"),
        FileType::Yaml => Some("yaml"),
        FileType::Toml => Some("toml"),
        FileType::Crdt => Some("crdt"),
        FileType::Log => Some("log"),
        FileType::Binary => Some("binary"),
    };
    let on_conflict = match (args.ours_wins, args.theirs_wins) {
        (true, _) => OnConflict::Ours,
        (_, true) => OnConflict::Theirs,
        _ => by_policy.on_conflict,
    };
    FileRule { strategy: strategy.map(str::to_owned), on_conflict, ..by_policy.clone() }
}

/// When a file was written, for rules that go by it.
fn written(path: &Path) -> Result<i64> {
    let modified =
        fs::metadata(path).and_then(|metadata| metadata.modified()).map_err(|error| unread(path, &error))?;
    Ok(Timestamp::from(modified).0)
}

/// What is written, and how many conflicts are left in it.
fn result(args: &MergeFile, merged: &FileMerge, versions: &Versions<'_>) -> (Vec<u8>, usize) {
    let Some(conflict) = merged.conflict.as_ref().filter(|_| !merged.is_settled()) else {
        return (merged.merged.content.clone(), 0);
    };
    let counted = conflict.places.len().max(1);
    // Markers are bytes: in binary files and in UTF-16 they would be rubbish.
    let has_markers = [versions.ours, versions.theirs].iter().all(|text| !text.contains(&0));
    if merged.strategy == Some("binary") || !has_markers {
        return (merged.merged.content.clone(), counted);
    }
    let base = versions.base.unwrap_or_default();
    let Ok(text) = TextMerge::new(base, versions.ours, versions.theirs, Effort::default()) else {
        return (merged.merged.content.clone(), counted);
    };
    if args.union {
        return (text.favor(Favor::Union), 0);
    }
    let (content, shown) = text.render(style(args), &labels(args));
    if shown > 0 {
        return (content, shown);
    }
    // Lines can be merged, but not what they say, or nobody may take them without looking.
    let (content, shown) = text.in_conflict().render(style(args), &labels(args));
    (content, shown.max(counted))
}

fn style(args: &MergeFile) -> Style {
    match args.style {
        _ if args.diff3 => Style::Diff3,
        _ if args.zdiff3 => Style::Zdiff3,
        ConflictStyle::Merge => Style::Merge,
        ConflictStyle::Diff3 => Style::Diff3,
        ConflictStyle::Zdiff3 => Style::Zdiff3,
    }
}

/// As git says it, the files themselves are named where nobody says otherwise.
fn labels(args: &MergeFile) -> Labels<'_> {
    let files = [&args.ours, &args.base, &args.theirs];
    let label = |at: usize| {
        let said = args.labels.get(at).map(String::as_str);
        said.unwrap_or_else(|| files[at].to_str().unwrap_or_default())
    };
    Labels { ours: label(0), base: label(1), theirs: label(2), size: usize::from(args.marker_size) }
}

/// Lines of both sides are text for sure, and nothing else.
fn warn_of_union(path: &str, strategy: Option<&str>) {
    if let Some(kind @ ("json" | "yaml" | "toml" | "crdt")) = strategy {
        print_stderr(&format!(
            "warning: `{path}` has the lines of both sides now; it may be no valid {kind} any more"
        ));
    }
}

fn tell(path: &str, merged: &FileMerge) {
    let Some(conflict) = &merged.conflict else { return };
    print_stderr(&format!("conflict in {path}: {}", conflict.reason));
    for place in &conflict.places {
        if let Place::Value(value) = place {
            print_stderr(&format!("  at {}", value.path));
        }
    }
}

/// The result takes the place of a file: a device or a pipe would be gone, and what may not be written stays.
fn check_replaceable(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| unread(path, &error))?;
    let told = path.display();
    if !metadata.is_file() {
        return Err(CommandError::failed(format!("{told} is no regular file and cannot get the result"))
            .hint("`-p` prints it"));
    }
    let is_open = fs::OpenOptions::new().append(true).open(path);
    is_open
        .map(drop)
        .map_err(|error| CommandError::failed(format!("cannot write {told}: {error}")).hint(io_hint(&error)))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| unread(path, &error))
}

fn unread(path: &Path, error: &io::Error) -> CommandError {
    CommandError::failed(format!("cannot read {}: {error}", path.display())).hint(io_hint(error))
}

/// Whoever reads it meanwhile sees the old or the new one whole. A symlink stays one.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    replace(path, content).map_err(|error| {
        CommandError::failed(format!("cannot write {}: {error}", path.display())).hint(io_hint(&error))
    })
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let mut new = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
    new.write_all(content)?;
    new.as_file().set_permissions(fs::metadata(&path)?.permissions())?;
    new.persist(&path).map(drop).map_err(|error| error.error)
}
