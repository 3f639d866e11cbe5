//! Statistics of a diff: lines and sizes of each change, risks, totals.

use workspace_state::{ContentCode, EntryCode, EntryInsight, InsightDiff, RiskNote, Totals, quote_path};

use super::{change_label, display_path};
use crate::error::Result;
use crate::output::Output;
use crate::text::{format_bytes, pluralize};

/// Prints a line per change, then the totals.
pub(super) fn print(output: &mut Output, insight: &InsightDiff) -> Result<()> {
    if output.is_json() {
        insight.entries.iter().try_for_each(|entry| output.record(entry))?;
        return Ok(());
    }
    for entry in &insight.entries {
        output.line(format_args!("{}{}{}", change_label(entry.change), path(entry), numbers(entry)))?;
    }
    output.line(totals_line(&insight.totals))
}

fn path(entry: &EntryInsight) -> String {
    let is_directory =
        entry.new.as_ref().or(entry.old.as_ref()).is_some_and(|it| it.kind == EntryCode::Directory);
    let path = display_path(&entry.path.0, is_directory);
    match &entry.renamed_from {
        Some(from) => format!("{} -> {path}", display_path(&from.0, is_directory)),
        None => path,
    }
}

/// Formats the numbers of changed lines, or for a binary or large file the change of its size.
fn numbers(entry: &EntryInsight) -> String {
    let change = signed_bytes(entry.size_change);
    match (entry.lines_added, entry.lines_removed, entry.content) {
        (Some(0), Some(0), _) => String::new(),
        (Some(added), Some(removed), _) => format!("  +{added} -{removed}"),
        (_, _, Some(ContentCode::Binary)) => format!("  binary, {change}"),
        _ if entry.too_large => format!("  too large to compare, {change}"),
        _ => String::new(),
    }
}

fn signed_bytes(change: i64) -> String {
    let sign = if change < 0 { '-' } else { '+' };
    format!("{sign}{}", format_bytes(change.unsigned_abs()))
}

fn totals_line(totals: &Totals) -> String {
    let changes = [
        (totals.added, "added"),
        (totals.removed, "removed"),
        (totals.modified, "modified"),
        (totals.type_changed, "of another type"),
        (totals.mode_changed, "of another mode"),
        (totals.renamed, "renamed"),
    ];
    let mut parts: Vec<String> = changes
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if parts.is_empty() {
        return "no differences".to_owned();
    }
    parts.push(format!("+{} -{} lines", totals.lines_added, totals.lines_removed));
    parts.push(signed_bytes(totals.size_change));
    parts.join(", ")
}

/// Prints the risk notes, each with its code, which scripts may rely on.
pub(super) fn print_notes(output: &mut Output, insight: &InsightDiff) -> Result<()> {
    let count = insight.totals.notes.values().sum::<u64>();
    if count == 0 {
        return Ok(());
    }
    output.line("")?;
    output.line(pluralize(count, "item to review:", "items to review:"))?;
    for note in &insight.notes {
        output.line(format_args!("  {}", format_note(note)))?;
    }
    for entry in &insight.entries {
        for note in &entry.notes {
            output.line(format_args!("  {}  {}", format_note(note), path(entry)))?;
        }
    }
    Ok(())
}

fn format_note(note: &RiskNote) -> String {
    let mut text = code(&note.code);
    if let Some(pattern) = &note.pattern {
        text.push_str(&format!(" ({})", code(pattern)));
    }
    if let Some(line) = note.line {
        text.push_str(&format!(" line {line}"));
    }
    if let Some(path) = &note.path {
        text.push_str(&format!(" {}", quote_path(&path.0)));
    }
    text
}

/// Returns the JSON name of a code, such as `ChangeCode` or that of a risk note.
fn code(code: &impl serde::Serialize) -> String {
    match serde_json::to_value(code) {
        Ok(serde_json::Value::String(text)) => text,
        other => unreachable!("a code is a string: {other:?}"),
    }
}
