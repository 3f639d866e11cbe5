//! Traces of commands: snapshots that are made automatically after commands which changed files.

use sqlx::AnyConnection;

use crate::clock::now;
use crate::error::Result;
use crate::note;
use crate::row::Row;
use crate::snapshot::{Snapshots, signed};
use crate::statement::Statement;

/// Outcome of the automatic snapshot after a command that may have changed files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandTrace {
    /// Snapshot that was made after the command.
    Snapshot {
        /// Id of the snapshot in the store.
        id: String,
        /// Owner of the sandbox.
        owner: String,
        /// Id of the round of the workspace ([`SnapshotOrigin::round_id`](crate::SnapshotOrigin::round_id)).
        round_id: Option<String>,
        /// Growth of the store by the snapshot, in bytes.
        bytes: u64,
    },
    /// Reason why there is no snapshot, or none yet.
    Failed(String),
    /// The command changed no file.
    Unchanged,
}

/// Stores the outcome of the automatic snapshot of a command. If the command was deleted in the meantime, only the
/// owner of its snapshot is stored.
pub(crate) async fn record(
    connection: &mut AnyConnection,
    sandbox_id: &str,
    command: &str,
    trace: &CommandTrace,
) -> Result<()> {
    let (snapshot, error) = match trace {
        CommandTrace::Snapshot { id, .. } => (Some(id.as_str()), None),
        CommandTrace::Failed(reason) => (None, Some(reason.as_str())),
        CommandTrace::Unchanged => (None, None),
    };
    // A recorded snapshot stays: a `Failed` that says that the snapshot is still being made may arrive after it.
    let update = Statement::new(
        "UPDATE commands SET snapshot = $1, trace_error = $2 WHERE id = $3 AND sandbox_id = $4 AND snapshot IS NULL",
    );
    let update = update.optional_text("snapshot", snapshot).optional_text("trace_error", error);
    update.text("id", command).text("sandbox_id", sandbox_id).run(connection).await?;
    let CommandTrace::Snapshot { id, owner, round_id, bytes } = trace else { return Ok(()) };
    // The column `workspace` has the id of the round, by the former name of rounds.
    let insert = Statement::new(
        "INSERT INTO snapshots (owner, id, sandbox, workspace, created_at, bytes, command)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (owner, id) DO NOTHING",
    );
    let insert = insert.text("owner", owner).text("id", id).text("sandbox", sandbox_id);
    let insert = insert.optional_text("workspace", round_id.as_deref()).number(now());
    insert.number(signed(*bytes)).text("command", command).run(connection).await?;
    note::attach(connection, sandbox_id, id).await
}

impl Snapshots<'_> {
    /// Returns the ids of automatic snapshots of a sandbox, without the newest `keep`; newest first, at most `limit`.
    pub async fn old_traces(&self, sandbox: &str, keep: u32, limit: u32) -> Result<Vec<String>> {
        let select = Statement::new(
            "SELECT id FROM snapshots WHERE sandbox = $1 AND command IS NOT NULL ORDER BY id DESC LIMIT $2 OFFSET $3",
        );
        let select = select.text("sandbox", sandbox).number(limit.into()).number(keep.into());
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Makes an automatic snapshot an ordinary one, which [`Self::old_traces`] does not return. For snapshots that
    /// something depends on.
    pub async fn keep(&self, id: &str) -> Result<()> {
        let update =
            Statement::new("UPDATE snapshots SET command = NULL WHERE id = $1 AND command IS NOT NULL");
        update.text("id", id).run(&mut *self.database.connection().await?).await?;
        Ok(())
    }
}
