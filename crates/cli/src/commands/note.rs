//! `workspace note`

use workspace_api::notes::{CreateNote, Note, NoteList};

use super::table;
use crate::args::{NoteAdd, NoteCommand, NoteLs};
use crate::context::Context;
use crate::error::{Outcome, Result};
use crate::remote::{Client, find_sandbox, percent_encode, with_client};
use crate::text;

/// Number of notes per request.
const PAGE_SIZE: u32 = 1_000;

pub(crate) fn run(context: &mut Context, command: NoteCommand) -> Result<Outcome> {
    match command {
        NoteCommand::Add(args) => add(context, args),
        NoteCommand::Ls(args) => {
            with_client(&args.server, async |client| list(context, client, &args).await)?;
            Ok(Outcome::Done)
        }
    }
}

fn add(context: &mut Context, args: NoteAdd) -> Result<Outcome> {
    let body = CreateNote { text: args.text, data: args.data, command: args.command };
    let note = with_client(&args.server, async |client| {
        let id = find_sandbox(client, &args.sandbox).await?;
        client.post::<Note>(&format!("/api/v1/sandboxes/{id}/notes"), &body).await
    })?;
    if context.output.is_json() {
        context.output.record(&note)?;
    } else {
        context.output.line(&note.id)?;
    }
    Ok(Outcome::Done)
}

async fn list(context: &mut Context, client: &Client, args: &NoteLs) -> Result<()> {
    let id = find_sandbox(client, &args.sandbox).await?;
    let sort = if args.newest { "newest" } else { "oldest" };
    let mut query = format!("limit={PAGE_SIZE}&sort={sort}");
    if let Some(command) = &args.command {
        query.push_str(&format!("&command={}", percent_encode(command.as_bytes())));
    }
    let mut cursor = String::new();
    loop {
        let page: NoteList = client.get(&format!("/api/v1/sandboxes/{id}/notes?{query}{cursor}")).await?;
        page.items.iter().try_for_each(|note| print(context, note))?;
        let Some(next) = page.next else { return Ok(()) };
        cursor = format!("&cursor={}", percent_encode(next.as_bytes()));
    }
}

fn print(context: &mut Context, note: &Note) -> Result<()> {
    if context.output.is_json() {
        return context.output.record(note);
    }
    context.output.line(text::escape_controls(&line(note)))
}

/// Formats a note on one line: time, command or snapshot that it is about, first line of the text.
pub(super) fn line(note: &Note) -> String {
    let subject = note.command.as_deref().or(note.snapshot.as_deref()).unwrap_or("-");
    format!("{}  {subject}  {}", table::time(&note.time), text::first_line(&note.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_line() {
        let note = Note {
            id: "note-1".to_owned(),
            sandbox_id: "sbx-1".to_owned(),
            command: None,
            snapshot: None,
            text: "first\nsecond".to_owned(),
            data: None,
            time: "not a time".to_owned(),
        };
        assert_eq!(line(&note), "not a time  -  first");
        let about = Note { command: Some("cmd-1".to_owned()), ..note };
        assert_eq!(line(&about), "not a time  cmd-1  first");
    }
}
