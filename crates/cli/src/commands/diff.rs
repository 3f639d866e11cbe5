//! `workspace diff`

pub(super) mod side;
mod stat;
mod why;

use serde::Serialize;
use workspace_state::{
    ChangeCode, Difference, DifferenceKind, Entry, InsightDiff, Node, NodeKind, Tree, TreePath, diff,
    insight, quote_path, unified_diff,
};

use crate::args::Diff;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::fields;
use crate::output::Output;
use side::{Side, SideSource};

/// Number of context lines in a patch, as in git.
const CONTEXT_LINES: usize = 3;

pub(crate) fn run(context: &mut Context, args: &Diff) -> Result<Outcome> {
    if args.why {
        return why::run(context, args);
    }
    let store = context.store()?;
    // Both names are resolved before a directory is read.
    let (a, b) = (SideSource::resolve(&store, &args.a)?, SideSource::resolve(&store, &args.b)?);
    let from = Side::open(&store, &a, !args.no_ignore, &context.progress)?;
    let to = Side::open(&store, &b, !args.no_ignore, &context.progress)?;
    let output = &mut context.output;
    if args.insight {
        print_insight(output, &insight(&from.tree, &to.tree)?)?;
    } else if args.stat {
        stat::print(output, &insight(&from.tree, &to.tree)?)?;
    } else if args.patch {
        print_patch(output, &from.tree, &to.tree)?;
    } else {
        for difference in diff(&from.tree, &to.tree)? {
            print_difference(output, &difference)?;
        }
    }
    Ok(Outcome::with_warnings_if(from.has_unreadable_entries || to.has_unreadable_entries))
}

/// A difference as `--json` prints it.
#[derive(Serialize)]
pub(super) struct DifferenceFields {
    path: TreePath,
    change: ChangeCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    renamed_from: Option<TreePath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<SummaryFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<SummaryFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

/// One side of a difference as `--json` prints it.
#[derive(Serialize)]
struct SummaryFields {
    kind: NodeKind,
    mode: String,
    size: u64,
}

impl SummaryFields {
    fn new(entry: &Entry) -> Self {
        let size = match &entry.node {
            Node::Directory(_) => 0,
            node => node.size(),
        };
        Self { kind: entry.node.kind(), mode: fields::octal_mode(entry.node.mode()), size }
    }
}

impl DifferenceFields {
    fn new(difference: &Difference) -> Self {
        let renamed_from = match &difference.kind {
            DifferenceKind::Renamed { from } => Some(TreePath(from.clone())),
            _ => None,
        };
        Self {
            path: TreePath(difference.path.clone()),
            change: change_code(&difference.kind),
            renamed_from,
            old: difference.old.as_ref().map(SummaryFields::new),
            new: difference.new.as_ref().map(SummaryFields::new),
            patch: None,
        }
    }
}

/// Returns a difference as `--json` prints it.
pub(super) fn difference_fields(difference: &Difference) -> DifferenceFields {
    DifferenceFields::new(difference)
}

fn change_code(kind: &DifferenceKind) -> ChangeCode {
    match kind {
        DifferenceKind::Added => ChangeCode::Added,
        DifferenceKind::Removed => ChangeCode::Removed,
        DifferenceKind::Modified => ChangeCode::Modified,
        DifferenceKind::TypeChanged => ChangeCode::TypeChanged,
        DifferenceKind::ModeChanged => ChangeCode::ModeChanged,
        DifferenceKind::Renamed { .. } => ChangeCode::Renamed,
    }
}

/// Returns the name of a change, padded to the width of the column.
pub(super) fn change_label(change: ChangeCode) -> &'static str {
    match change {
        ChangeCode::Added => "added        ",
        ChangeCode::Removed => "removed      ",
        ChangeCode::Modified => "modified     ",
        ChangeCode::TypeChanged => "type changed ",
        ChangeCode::ModeChanged => "mode changed ",
        ChangeCode::Renamed => "renamed      ",
    }
}

pub(super) fn print_difference(output: &mut Output, difference: &Difference) -> Result<()> {
    if output.is_json() {
        return output.record(&DifferenceFields::new(difference));
    }
    let change_label = change_label(change_code(&difference.kind));
    let is_directory = |entry: Option<&Entry>| entry.is_some_and(|it| it.node.kind() == NodeKind::Directory);
    let path =
        display_path(&difference.path, is_directory(difference.new.as_ref().or(difference.old.as_ref())));
    match &difference.kind {
        DifferenceKind::Renamed { from } => {
            let from = display_path(from, is_directory(difference.old.as_ref()));
            output.line(format_args!("{change_label}{from} -> {path}"))
        }
        DifferenceKind::ModeChanged => output.line(format_args!("{change_label}{path}{}", modes(difference))),
        _ => output.line(format_args!("{change_label}{path}")),
    }
}

/// Formats a path, with a slash if it is a directory. An empty path is the root.
pub(super) fn display_path(path: &[u8], is_directory: bool) -> String {
    match path {
        b"" => "./".to_owned(),
        path => format!("{}{}", quote_path(path), if is_directory { "/" } else { "" }),
    }
}

/// Formats the old and the new mode. If they are equal, the extended attributes differ.
fn modes(difference: &Difference) -> String {
    match (&difference.old, &difference.new) {
        (Some(old), Some(new)) if old.node.mode() != new.node.mode() => {
            format!(" ({} -> {})", fields::octal_mode(old.node.mode()), fields::octal_mode(new.node.mode()))
        }
        _ => " (extended attributes)".to_owned(),
    }
}

/// Prints a patch; with `--json` a record per file, each with its patch.
pub(super) fn print_patch(output: &mut Output, from: &Tree, to: &Tree) -> Result<()> {
    for difference in diff(from, to)? {
        let patch = unified_diff(from, to, &difference, CONTEXT_LINES)?;
        if output.is_json() {
            // Bytes that are not UTF-8 are replaced in JSON; `--patch` without `--json` prints them unchanged.
            let text = String::from_utf8_lossy(&patch.to_bytes()).into_owned();
            let fields = DifferenceFields { patch: Some(text), ..DifferenceFields::new(&difference) };
            output.record(&fields)?;
        } else {
            patch.write_to(&mut output.writer()).map_err(|error| CommandError::output_failed(&error))?;
        }
    }
    Ok(())
}

/// Prints an insight diff: line counts, sizes and risk notes of each change (docs/insight.md).
pub(super) fn print_insight(output: &mut Output, insight: &InsightDiff) -> Result<()> {
    if output.is_json() {
        return output.record(insight);
    }
    stat::print(output, insight)?;
    stat::print_notes(output, insight)
}
