//! Table `commands`: commands that ran in sandboxes, with their exit status.

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement};
use crate::string_enum::string_enum;
use crate::trace::CommandTrace;
use crate::writer::{CommandWrite, Writer};

/// Maximum size of the returned text of a command, in bytes. Longer texts are cut at a character boundary, so
/// that a list of commands does not occupy a pooled database connection for long. Little more is stored,
/// because nothing needs the rest.
pub const COMMAND_SHOWN_MAX: usize = 4 << 10;
/// Length in bytes of the longest UTF-8 character.
const CHARACTER_MAX: usize = 4;

string_enum! {
    /// State of a command.
    pub enum CommandState {
        /// The command is running.
        Running = "running",
        /// The command exited, or was killed by a signal.
        Exited = "exited",
        /// The command could not be started, or was lost with its sandbox.
        Failed = "failed",
    }
}

/// Command to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommand {
    /// Unique id, `cmd-` followed by a UUIDv7.
    pub id: String,
    /// Sandbox in which the command runs.
    pub sandbox_id: String,
    /// Text of the command. Little more than the first [`COMMAND_SHOWN_MAX`] bytes is stored, which shows that there is
    /// more.
    pub command: String,
    /// Arguments of a command that runs without a shell. They are stored only if its text is stored whole.
    pub argv: Option<Vec<String>>,
    /// Working directory; `None` for the default.
    pub cwd: Option<String>,
    /// Label that the client chose, to filter lists by.
    pub tag: Option<String>,
    /// Start time in milliseconds since 1970.
    pub started_at: i64,
}

/// Exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    /// False if the command could not be started, or was lost with its sandbox.
    pub exited: bool,
    /// Exit code; `None` if the command did not exit.
    pub exit_code: Option<i64>,
    /// True if the command was killed by its timeout.
    pub timed_out: bool,
    /// PID of the program inside the sandbox; `None` if it is unknown.
    pub pid: Option<u32>,
    /// End time in milliseconds since 1970.
    pub ended_at: i64,
}

/// Stored command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Unique id, `cmd-` followed by a UUIDv7.
    pub id: String,
    /// Sandbox in which the command runs.
    pub sandbox_id: String,
    /// Text of the command, at most its first [`COMMAND_SHOWN_MAX`] bytes.
    pub command: String,
    /// True if the text is longer than stored here.
    pub command_truncated: bool,
    /// Arguments of a command that runs without a shell; `None` also if its text is longer than stored here.
    pub argv: Option<Vec<String>>,
    /// Working directory; `None` for the default.
    pub cwd: Option<String>,
    /// Label that the client chose, to filter lists by.
    pub tag: Option<String>,
    /// PID of the program inside the sandbox; `None` if it is unknown, or while the command runs.
    pub pid: Option<u32>,
    /// Current state.
    pub state: CommandState,
    /// Exit code; `None` while the command runs, or if it did not exit.
    pub exit_code: Option<i64>,
    /// True if the command was killed by its timeout.
    pub timed_out: bool,
    /// Start time in milliseconds since 1970.
    pub started_at: i64,
    /// End time in milliseconds since 1970; `None` while the command runs.
    pub ended_at: Option<i64>,
    /// Snapshot that was made automatically after the command. It may be deleted.
    pub snapshot: Option<String>,
    /// Reason why there is no automatic snapshot although the sandbox has them on and files may have changed.
    pub trace_error: Option<String>,
}

/// SQL text that selects all columns of rows of the table `commands`, for `from_row`. The argument is the rest of the
/// statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            // Rows of older servers contain whole commands. One character more than the limit shows that
            // there is more.
            "SELECT id, sandbox_id, substr(command, 1, 4097) AS command, argv, cwd, tag, pid, state, exit_code,
                 timed_out, started_at, ended_at, snapshot, trace_error
             FROM commands ",
            $rest
        )
    };
}

/// Queries on the table `commands`.
#[derive(Debug, Clone, Copy)]
pub struct Commands<'c> {
    pub(crate) database: &'c Database,
    /// Commits writes of several callers together on SQLite; `None` on PostgreSQL, which does that itself.
    pub(crate) writer: Option<&'c Writer>,
}

impl Commands<'_> {
    async fn write(&self, write: CommandWrite) -> Result<()> {
        match self.writer {
            Some(writer) => writer.write(write).await,
            None => write.run_alone(self.database).await,
        }
    }

    /// Inserts a running command.
    pub async fn insert(&self, command: &NewCommand) -> Result<()> {
        self.write(CommandWrite::Insert(command.clone())).await
    }

    /// Stores the exit status of a command of that sandbox. Fails if the command already ended. A command of
    /// another sandbox is not found, since the id may come from a guest agent.
    pub async fn finish(&self, sandbox_id: &str, id: &str, end: CommandEnd) -> Result<()> {
        let (sandbox_id, id) = (sandbox_id.to_owned(), id.to_owned());
        self.write(CommandWrite::Finish { sandbox_id, id, end }).await
    }

    /// Stores the exit status of a command like [`Self::finish`], and in the same transaction the outcome of its
    /// automatic snapshot. A snapshot gets its owner, and the notes of the sandbox (texts of agents about their steps)
    /// that belong to no snapshot yet.
    pub async fn finish_traced(
        &self,
        sandbox_id: &str,
        id: &str,
        end: CommandEnd,
        trace: CommandTrace,
    ) -> Result<()> {
        let (sandbox_id, id) = (sandbox_id.to_owned(), id.to_owned());
        self.write(CommandWrite::FinishTraced { sandbox_id, id, end, trace }).await
    }

    /// Stores the outcome of the automatic snapshot of a command whose exit status is already stored.
    pub async fn record_trace(&self, sandbox_id: &str, id: &str, trace: CommandTrace) -> Result<()> {
        let (sandbox_id, id) = (sandbox_id.to_owned(), id.to_owned());
        self.write(CommandWrite::Trace { sandbox_id, id, trace }).await
    }

    /// Returns a command by id.
    pub async fn get(&self, id: &str) -> Result<Option<Command>> {
        get(&mut *self.database.reader().await?, id).await
    }

    /// Returns the newest commands of a sandbox, at most `limit`, newest first. With `tag`, only those that have it.
    pub async fn list(&self, sandbox_id: &str, tag: Option<&str>, limit: u32) -> Result<Vec<Command>> {
        let select = match tag {
            Some(tag) => Statement::new(select!(
                "WHERE sandbox_id = $1 AND tag = $2 ORDER BY started_at DESC, id DESC LIMIT $3"
            ))
            .text("sandbox_id", sandbox_id)
            .text("tag", tag),
            None => {
                Statement::new(select!("WHERE sandbox_id = $1 ORDER BY started_at DESC, id DESC LIMIT $2"))
                    .text("sandbox_id", sandbox_id)
            }
        };
        let select = select.number(limit.into());
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }

    /// Returns the ids of the newest commands of a sandbox, at most `limit`, newest first.
    pub async fn newest_ids(&self, sandbox_id: &str, limit: u32) -> Result<Vec<String>> {
        let select = Statement::new(
            "SELECT id FROM commands WHERE sandbox_id = $1 ORDER BY started_at DESC, id DESC LIMIT $2",
        );
        let select = select.text("sandbox_id", sandbox_id).number(limit.into());
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Returns the ids of commands of a sandbox that ended, without the newest `keep` of them; newest first,
    /// at most 1000.
    pub async fn old_ended_ids(&self, sandbox_id: &str, keep: u32) -> Result<Vec<String>> {
        let select = Statement::new(
            "SELECT id FROM commands WHERE sandbox_id = $1 AND state <> 'running'
             ORDER BY started_at DESC, id DESC LIMIT 1000 OFFSET $2",
        );
        let select = select.text("sandbox_id", sandbox_id).number(keep.into());
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Deletes commands that ended. Running and missing ones are ignored.
    pub async fn delete_ended(&self, ids: &[String]) -> Result<()> {
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let ids = parameters.texts("id", ids);
            let sql = format!("DELETE FROM commands WHERE id IN ({ids}) AND state <> 'running'");
            let delete = Statement::with_parameters(&sql, parameters);
            delete.run(&mut *self.database.connection().await?).await?;
        }
        Ok(())
    }

    /// Returns the running commands of a sandbox, oldest first.
    pub async fn running(&self, sandbox_id: &str) -> Result<Vec<Command>> {
        let select =
            Statement::new(select!("WHERE sandbox_id = $1 AND state = 'running' ORDER BY started_at, id"));
        let select = select.text("sandbox_id", sandbox_id);
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }
}

pub(crate) async fn insert(connection: &mut AnyConnection, command: &NewCommand) -> Result<()> {
    let insert = Statement::new(
        "INSERT INTO commands (id, sandbox_id, command, argv, cwd, tag, state, timed_out, started_at)
         VALUES ($1, $2, $3, $4, $5, $6, 'running', 0, $7)",
    );
    let argv = command.argv.as_ref().filter(|_| command.command.len() <= COMMAND_SHOWN_MAX);
    let argv = argv.map(|argv| serde_json::Value::from(argv.as_slice()).to_string());
    let insert = insert.text("id", &command.id).text("sandbox_id", &command.sandbox_id);
    let insert = insert.text("command", stored_text(&command.command)).optional_text("argv", argv.as_deref());
    let insert = insert.optional_text("cwd", command.cwd.as_deref());
    let insert = insert.optional_text("tag", command.tag.as_deref());
    let done = insert.number(command.started_at).run(connection).await;
    done.map_err(|error| {
        error
            .unique_key_as_exists("command", &command.id)
            .foreign_key_as_not_found("sandbox", &command.sandbox_id)
    })?;
    Ok(())
}

pub(crate) async fn finish(
    connection: &mut AnyConnection,
    sandbox_id: &str,
    id: &str,
    end: CommandEnd,
) -> Result<()> {
    let state = if end.exited { CommandState::Exited } else { CommandState::Failed };
    let update = Statement::new(
        "UPDATE commands SET state = $1, exit_code = $2, timed_out = $3, ended_at = $4, pid = $5
         WHERE id = $6 AND sandbox_id = $7 AND state = 'running'",
    );
    let update = update.text("state", state.as_str()).optional_number(end.exit_code);
    let update = update.number(end.timed_out.into()).number(end.ended_at);
    let update = update.optional_number(end.pid.map(Into::into));
    let update = update.text("id", id).text("sandbox_id", sandbox_id);
    if update.run(connection).await? > 0 {
        return Ok(());
    }
    Err(match get(connection, id).await?.filter(|found| found.sandbox_id == sandbox_id) {
        Some(_) => CatalogError::Ended { id: id.to_owned() },
        None => CatalogError::NotFound { what: "command", id: id.to_owned() },
    })
}

async fn get(connection: &mut AnyConnection, id: &str) -> Result<Option<Command>> {
    let select = Statement::new(select!("WHERE id = $1"));
    select.text("id", id).optional(connection).await?.map(from_row).transpose()
}

/// Returns the part of a text that is stored: one character more than is returned, to show that there is
/// more.
fn stored_text(command: &str) -> &str {
    truncated(command, COMMAND_SHOWN_MAX + CHARACTER_MAX)
}

/// Returns the longest prefix of whole characters with at most `max` bytes.
fn truncated(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn from_row(row: AnyRow) -> Result<Command> {
    let row = Row(row);
    let stored = row.text("command")?;
    let command = truncated(&stored, COMMAND_SHOWN_MAX).to_owned();
    Ok(Command {
        id: row.text("id")?,
        sandbox_id: row.text("sandbox_id")?,
        command_truncated: command.len() < stored.len(),
        command,
        argv: row.optional_json("argv")?.as_ref().and_then(argv_from_json),
        cwd: row.optional_text("cwd")?,
        tag: row.optional_text("tag")?,
        pid: row.optional_number("pid")?.and_then(|pid| u32::try_from(pid).ok()),
        state: row.parsed("state")?,
        exit_code: row.optional_number("exit_code")?,
        timed_out: row.number("timed_out")? != 0,
        started_at: row.number("started_at")?,
        ended_at: row.optional_number("ended_at")?,
        snapshot: row.optional_text("snapshot")?,
        trace_error: row.optional_text("trace_error")?,
    })
}

/// Converts a JSON array of strings; `None` for another value.
fn argv_from_json(value: &serde_json::Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|argument| argument.as_str().map(str::to_owned)).collect()
}
