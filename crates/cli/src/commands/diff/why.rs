//! `workspace diff --why`: differences on a server with their causes.

use std::collections::HashMap;

use workspace_api::diff::{Cause, ChangeKind, Diff as Comparison, Difference};
use workspace_api::snapshots::EntryKind;

use crate::args::Diff;
use crate::context::Context;
use crate::error::{CommandError, Outcome, Result};
use crate::output::Output;
use crate::remote::{find_snapshot, with_client};
use crate::text;

/// Maximum number of differences in the response of the server.
const LIMIT: u32 = 10_000;

pub(super) fn run(context: &mut Context, args: &Diff) -> Result<Outcome> {
    let name =
        |text: &std::ffi::OsString| text.to_str().map(str::to_owned).ok_or_else(|| not_a_snapshot(text));
    let (a, b) = (name(&args.a)?, name(&args.b)?);
    let server = args.server.to_server();
    let compared: Comparison = with_client(&server, async |client| {
        let (a, b) = (find_snapshot(client, &a).await?, find_snapshot(client, &b).await?);
        client.get(&format!("/api/v1/snapshots/{a}/diff/{b}?why=true&limit={LIMIT}")).await
    })?;
    if context.output.is_json() {
        context.output.record(&compared)?;
    } else {
        print(&mut context.output, &compared)?;
    }
    if compared.truncated {
        text::print_stderr(&format!(
            "warning: there are {} differences; {LIMIT} are printed",
            compared.total
        ));
    }
    let is_complete = compared.causes_complete.unwrap_or_default();
    if !is_complete {
        text::print_stderr(
            "warning: not all causes are known: snapshots between the two are missing, are not yours, or are too many",
        );
    }
    Ok(Outcome::with_warnings_if(compared.truncated || !is_complete))
}

fn not_a_snapshot(text: &std::ffi::OsString) -> CommandError {
    CommandError::failed(format!("`{}` is no snapshot of the server", text.to_string_lossy()))
}

fn print(output: &mut Output, compared: &Comparison) -> Result<()> {
    let causes: HashMap<&str, &Cause> =
        compared.causes.iter().flatten().map(|cause| (cause.snapshot.as_str(), cause)).collect();
    for entry in &compared.entries {
        output.line(text::escape_controls(&entry_line(entry)))?;
        for cause in entry.causes.iter().flatten().filter_map(|id| causes.get(id.as_str())) {
            cause_lines(cause).iter().try_for_each(|line| output.line(text::escape_controls(line)))?;
        }
    }
    Ok(())
}

fn entry_line(entry: &Difference) -> String {
    let change = match entry.change {
        ChangeKind::Added => "added        ",
        ChangeKind::Removed => "removed      ",
        ChangeKind::Modified => "modified     ",
        ChangeKind::TypeChanged => "type changed ",
        ChangeKind::ModeChanged => "mode changed ",
        ChangeKind::Renamed => "renamed      ",
    };
    let side = entry.new.as_ref().or(entry.old.as_ref());
    let slash = if side.is_some_and(|side| side.kind == EntryKind::Directory) { "/" } else { "" };
    let path = format!("{}{slash}", entry.path);
    match &entry.renamed_from {
        Some(from) => format!("{change}{from}{slash} -> {path}"),
        None => format!("{change}{path}"),
    }
}

/// Formats a cause: a snapshot between the two that are compared, with its command and notes.
fn cause_lines(cause: &Cause) -> Vec<String> {
    let message = text::first_line(&cause.message);
    let mut lines = vec![match &cause.command {
        Some(command) => format!("    command {command}: {message}"),
        None => format!("    snapshot {}: {message}", cause.snapshot),
    }];
    if !cause.shared_with.is_empty() {
        lines.push(format!("      or others: {}", cause.shared_with.join(", ")));
    }
    lines.extend(cause.notes.iter().map(|note| format!("      note: {}", text::first_line(&note.text))));
    lines
}

#[cfg(test)]
mod tests {
    use workspace_api::notes::Note;

    use super::*;

    #[test]
    fn causes_name_the_command_and_the_notes() {
        let note = Note {
            id: "note-1".to_owned(),
            sandbox_id: "sbx-1".to_owned(),
            command: None,
            snapshot: None,
            text: "because\nof it".to_owned(),
            data: None,
            time: String::new(),
        };
        let cause = Cause {
            snapshot: "0199".to_owned(),
            time: String::new(),
            message: "make\nall".to_owned(),
            command: Some("cmd-1".to_owned()),
            shared_with: vec!["files".to_owned()],
            notes: vec![note],
        };
        let expected = ["    command cmd-1: make", "      or others: files", "      note: because"];
        assert_eq!(cause_lines(&cause), expected);
        let plain = Cause { command: None, shared_with: Vec::new(), notes: Vec::new(), ..cause };
        assert_eq!(cause_lines(&plain), ["    snapshot 0199: make"]);
    }
}
