//! Records of snapshots: rows by which a snapshot belongs to something.

use std::collections::HashSet;

use sqlx::AnyConnection;

use super::Snapshots;
use crate::database::DatabaseKind;
use crate::error::Result;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement, run_script};

/// Tables and columns that have ids of snapshots, each with a further condition on its rows: owners, heads of projects
/// that are not being deleted, completions, and the workspaces of agents.
const COLUMNS: [(&str, &str, &str); 5] = [
    ("snapshots", "id", ""),
    ("project_operations", "snapshot", " AND project NOT IN (SELECT project FROM project_deletions)"),
    ("completions", "theirs_snapshot", ""),
    ("agent_workspaces", "base_snapshot", ""),
    ("agent_workspaces", "next_snapshot", ""),
];

/// Transactions whose rows [`Snapshots::recorded`] must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// Those that have ended.
    Ended,
    /// Also those that write at the moment: the query waits for them, for at most a second in all, and fails if they
    /// take longer. The last transaction of a process that has ended may be one of them.
    EndedAndCurrent,
}

impl Snapshots<'_> {
    /// Returns those of the ids that a row names. If the process that was to insert the row of a snapshot has ended,
    /// and the row is not found with [`Transactions::EndedAndCurrent`], then it was not and will not be inserted.
    pub async fn recorded(&self, ids: &[String], transactions: Transactions) -> Result<HashSet<String>> {
        let mut recorded = HashSet::new();
        for (table, column, condition) in COLUMNS {
            for ids in ids.chunks(IDS_PER_STATEMENT) {
                let mut parameters = Parameters::default();
                let ids = parameters.texts("id", ids);
                let sql = format!(
                    "SELECT DISTINCT {column} AS id FROM {table} WHERE {column} IN ({ids}){condition}"
                );
                let mut transaction = self.database.begin().await?;
                if transactions == Transactions::EndedAndCurrent {
                    self.wait_for_writers(&mut transaction, table).await?;
                }
                for row in Statement::with_parameters(&sql, parameters).all(&mut transaction).await? {
                    recorded.insert(Row(row).text("id")?);
                }
                transaction.commit().await?;
            }
        }
        Ok(recorded)
    }

    /// Returns true if the configuration of a sandbox names the snapshot `id`, or if the workspace `workspace` may need
    /// it: this is the id of a sandbox, or that of the workspace of an agent which is not ready, but being moved.
    pub async fn is_needed(&self, id: &str, workspace: Option<&str>) -> Result<bool> {
        // The configuration is JSON; ids of snapshots have no characters that are special in a pattern.
        let pattern = format!("%{id}%");
        let workspace = workspace.unwrap_or_default();
        let select = Statement::new(
            "SELECT id FROM sandboxes WHERE id = $1 OR config LIKE $2
             UNION SELECT id FROM agent_workspaces WHERE id = $1 AND state <> 'ready' LIMIT 1",
        );
        let select = select.text("workspace", workspace).text("id", &pattern);
        Ok(select.optional(&mut *self.database.reader().await?).await?.is_some())
    }

    /// Waits for transactions that write to a table. Called for one table at a time, so that two servers never wait for
    /// each other.
    async fn wait_for_writers(&self, connection: &mut AnyConnection, table: &str) -> Result<()> {
        match self.database.kind() {
            // There is one writer at a time, and that is this transaction.
            DatabaseKind::Sqlite => Ok(()),
            // PostgreSQL finishes a commit even if the client that sent it was killed. Other writers wait behind this
            // lock, so it must not wait for long.
            DatabaseKind::Postgres => {
                run_script("SET LOCAL lock_timeout = '200ms'", connection).await?;
                run_script(&format!("LOCK TABLE {table} IN SHARE MODE"), connection).await
            }
        }
    }
}
