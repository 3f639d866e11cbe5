//! The table `commands`: what ran in the sandboxes and how it ended.

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::Statement;
use crate::words::words;
use crate::writer::Write;

/// Longest text of a command that is kept and shown, in bytes. Longer ones are cut at a character boundary. Every request
/// for a list reads the texts over the connections that all share, and nothing needs the rest of them.
pub const COMMAND_SHOWN_MAX: usize = 4 << 10;
/// Bytes of the longest character in UTF-8.
const CHARACTER_MAX: usize = 4;

words! {
    /// Where a command is.
    pub enum CommandState {
        /// It runs.
        Running = "running",
        /// It ended by itself or by a signal.
        Exited = "exited",
        /// It could not be started, or was lost with its sandbox.
        Failed = "failed",
    }
}

/// A command that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommand {
    /// Names it.
    pub id: String,
    /// Where it runs.
    pub sandbox_id: String,
    /// Text of the command. Only the first [`COMMAND_SHOWN_MAX`] bytes are kept.
    pub command: String,
    /// In which directory.
    pub cwd: Option<String>,
    /// Since when, in milliseconds since 1970.
    pub started_at: i64,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// False when it could not be started, or was lost with its sandbox.
    pub exited: bool,
    /// The code it ended with.
    pub exit_code: Option<i64>,
    /// Whether it was ended because its time was up.
    pub timed_out: bool,
    /// When, in milliseconds since 1970.
    pub ended_at: i64,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Names it.
    pub id: String,
    /// Where it runs.
    pub sandbox_id: String,
    /// Text of the command, at most the first [`COMMAND_SHOWN_MAX`] bytes of it.
    pub command: String,
    /// True if the text of the command goes on.
    pub command_truncated: bool,
    /// In which directory.
    pub cwd: Option<String>,
    /// Where it is.
    pub state: CommandState,
    /// The code it ended with.
    pub exit_code: Option<i64>,
    /// Whether it was ended because its time was up.
    pub timed_out: bool,
    /// When it started, in milliseconds since 1970.
    pub started_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            // Rows of older servers hold whole commands. As many characters as are shown bytes, and one more that tells of the rest.
            "SELECT id, sandbox_id, substr(command, 1, 4097) AS command, cwd, state, exit_code, timed_out, started_at, ended_at
             FROM commands ",
            $rest
        )
    };
}

/// The commands of a catalog.
#[derive(Debug, Clone, Copy)]
pub struct Commands<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl Commands<'_> {
    /// Writes down a command that runs.
    pub async fn insert(&self, command: &NewCommand) -> Result<()> {
        self.catalog.write(Write::Insert(command.clone())).await
    }

    /// Writes down how a command of that sandbox ended. The first end stays. Another sandbox's command is not found: the id
    /// may be what a guest said.
    pub async fn finish(&self, sandbox_id: &str, id: &str, end: End) -> Result<()> {
        let (sandbox_id, id) = (sandbox_id.to_owned(), id.to_owned());
        self.catalog.write(Write::Finish { sandbox_id, id, end }).await
    }

    /// The command of that id.
    pub async fn get(&self, id: &str) -> Result<Option<Command>> {
        get(&mut *self.catalog.connection().await?, id).await
    }

    /// The newest commands of a sandbox, at most `limit`, newest first.
    pub async fn list(&self, sandbox_id: &str, limit: u32) -> Result<Vec<Command>> {
        let select =
            Statement::new(select!("WHERE sandbox_id = $1 ORDER BY started_at DESC, id DESC LIMIT $2"));
        let select = select.text("sandbox_id", sandbox_id).number(limit.into());
        select.all(&mut *self.catalog.connection().await?).await?.into_iter().map(read).collect()
    }

    /// Ids of the newest commands of a sandbox, at most `limit`, newest first.
    pub async fn newest(&self, sandbox_id: &str, limit: u32) -> Result<Vec<String>> {
        let select = Statement::new(
            "SELECT id FROM commands WHERE sandbox_id = $1 ORDER BY started_at DESC, id DESC LIMIT $2",
        );
        let select = select.text("sandbox_id", sandbox_id).number(limit.into());
        let rows = select.all(&mut *self.catalog.connection().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Commands of a sandbox that ended before the newest `keep` of those that ended, oldest last; a few at a time.
    pub async fn ended_before_newest(&self, sandbox_id: &str, keep: u32) -> Result<Vec<String>> {
        let select = Statement::new(
            "SELECT id FROM commands WHERE sandbox_id = $1 AND state <> 'running'
             ORDER BY started_at DESC, id DESC LIMIT 1000 OFFSET $2",
        );
        let select = select.text("sandbox_id", sandbox_id).number(keep.into());
        let rows = select.all(&mut *self.catalog.connection().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Forgets a command that ended. One that runs, or is not there, is left as it is.
    pub async fn forget(&self, id: &str) -> Result<()> {
        let delete = Statement::new("DELETE FROM commands WHERE id = $1 AND state <> 'running'");
        delete.text("id", id).run(&mut *self.catalog.connection().await?).await?;
        Ok(())
    }

    /// The commands of a sandbox that run, oldest first.
    pub async fn running(&self, sandbox_id: &str) -> Result<Vec<Command>> {
        let select =
            Statement::new(select!("WHERE sandbox_id = $1 AND state = 'running' ORDER BY started_at, id"));
        let select = select.text("sandbox_id", sandbox_id);
        select.all(&mut *self.catalog.connection().await?).await?.into_iter().map(read).collect()
    }
}

pub(crate) async fn insert(on: &mut AnyConnection, command: &NewCommand) -> Result<()> {
    let insert = Statement::new(
        "INSERT INTO commands (id, sandbox_id, command, cwd, state, timed_out, started_at)
         VALUES ($1, $2, $3, $4, 'running', 0, $5)",
    );
    let insert = insert.text("id", &command.id).text("sandbox_id", &command.sandbox_id);
    let insert = insert.text("command", kept(&command.command)).optional_text("cwd", command.cwd.as_deref());
    let done = insert.number(command.started_at).run(on).await;
    done.map_err(|error| {
        error.or_exists("command", &command.id).or_not_found("sandbox", &command.sandbox_id)
    })?;
    Ok(())
}

pub(crate) async fn finish(on: &mut AnyConnection, sandbox_id: &str, id: &str, end: End) -> Result<()> {
    let state = if end.exited { CommandState::Exited } else { CommandState::Failed };
    let update = Statement::new(
        "UPDATE commands SET state = $1, exit_code = $2, timed_out = $3, ended_at = $4
         WHERE id = $5 AND sandbox_id = $6 AND state = 'running'",
    );
    let update = update.text("state", state.as_str()).optional_number(end.exit_code);
    let update = update.number(end.timed_out.into()).number(end.ended_at);
    let update = update.text("id", id).text("sandbox_id", sandbox_id);
    if update.run(on).await? > 0 {
        return Ok(());
    }
    Err(match get(on, id).await?.filter(|found| found.sandbox_id == sandbox_id) {
        Some(_) => CatalogError::Ended { id: id.to_owned() },
        None => CatalogError::NotFound { what: "command", id: id.to_owned() },
    })
}

async fn get(on: &mut AnyConnection, id: &str) -> Result<Option<Command>> {
    let select = Statement::new(select!("WHERE id = $1"));
    select.text("id", id).optional(on).await?.map(read).transpose()
}

/// The part of a command that is kept: of a long one more than is shown, so that readers know that it goes on.
fn kept(command: &str) -> &str {
    beginning(command, COMMAND_SHOWN_MAX + CHARACTER_MAX)
}

/// The beginning of a text, of at most `most` bytes and whole characters.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn read(row: AnyRow) -> Result<Command> {
    let row = Row(row);
    let kept = row.text("command")?;
    let command = beginning(&kept, COMMAND_SHOWN_MAX).to_owned();
    Ok(Command {
        id: row.text("id")?,
        sandbox_id: row.text("sandbox_id")?,
        command_truncated: command.len() < kept.len(),
        command,
        cwd: row.optional_text("cwd")?,
        state: row.word("state")?,
        exit_code: row.optional_number("exit_code")?,
        timed_out: row.number("timed_out")? != 0,
        started_at: row.number("started_at")?,
        ended_at: row.optional_number("ended_at")?,
    })
}
