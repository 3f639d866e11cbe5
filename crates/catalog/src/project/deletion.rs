//! Deletion of projects.
//!
//! Operations and file versions may be many, and one transaction for all of them would hold up every other writer of
//! SQLite. So they are deleted in batches after the project. The table `project_deletions` names the projects that
//! this is not finished for.

use super::Projects;
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent};
use crate::failpoint;
use crate::row::Row;
use crate::statement::Statement;
use crate::unmeasured_bytes::add_deleted_bytes;

/// Maximum number of operations, or of files with all their versions, deleted per transaction, so that others can
/// write in between.
const DELETE_BATCH_SIZE: i64 = 2_000;

/// Statements that delete a batch of rows of a project, one per table.
const DELETE_BATCH_SQL: [&str; 2] = [
    "DELETE FROM file_versions WHERE project = $1 AND file_id IN
     (SELECT file_id FROM file_versions WHERE project = $1 ORDER BY file_id LIMIT $2)",
    "DELETE FROM project_operations WHERE project = $1 AND sequence IN
     (SELECT sequence FROM project_operations WHERE project = $1 ORDER BY sequence LIMIT $2)",
];

impl Projects<'_> {
    /// Deletes a project with its policies, completions and reviews, and inserts events in the same transaction.
    /// Returns false, and inserts no events, if it does not exist. Fails with [`CatalogError::ProjectBusy`] while one
    /// of its completions is queued, or an agent has a workspace of it.
    ///
    /// The operations and file versions are left for [`Self::finish_deletion`]. Until then,
    /// [`Self::unfinished_deletions`] returns the project.
    pub async fn delete(&self, id: &str, events: &[NewEvent]) -> Result<bool> {
        let mut transaction = self.database.begin().await?;
        // Locks the row: otherwise `Projects::advance`, which moves the head, could record outcomes of completions
        // between the statements.
        let lock = Statement::new(
            "UPDATE projects SET updated_at = updated_at WHERE id = $1 RETURNING owner, bytes",
        );
        let Some(row) = lock.text("id", id).optional(&mut transaction).await?.map(Row) else {
            return Ok(false);
        };
        let (owner, bytes) = (row.text("owner")?, row.number("bytes")?);
        let ended = Statement::new("DELETE FROM completions WHERE project = $1 AND state <> 'queued'");
        ended.text("id", id).run(&mut transaction).await?;
        let delete = Statement::new("DELETE FROM projects WHERE id = $1");
        let deleted = delete.text("id", id).run(&mut transaction).await;
        deleted.map_err(|error| match error.foreign_key_as_not_found("completion", id) {
            CatalogError::NotFound { id, .. } => CatalogError::ProjectBusy { id },
            other => other,
        })?;
        let record = Statement::new("INSERT INTO project_deletions (project) VALUES ($1)");
        record.text("id", id).run(&mut transaction).await?;
        add_deleted_bytes(&mut transaction, &owner, bytes).await?;
        event::insert_for_owner(&mut transaction, &owner, events).await?;
        failpoint::hit("deletion-before-commit")?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        failpoint::hit("deletion-committed")?;
        Ok(true)
    }

    /// Returns the ids of deleted projects of which something is left. A server finishes them when it starts.
    pub async fn unfinished_deletions(&self) -> Result<Vec<String>> {
        let select = Statement::new("SELECT project FROM project_deletions ORDER BY project");
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("project")).collect()
    }

    /// Deletes what is left of a deleted project.
    pub async fn finish_deletion(&self, id: &str) -> Result<()> {
        for sql in DELETE_BATCH_SQL {
            loop {
                let delete = Statement::new(sql).text("id", id).number(DELETE_BATCH_SIZE);
                if delete.run(&mut *self.database.connection().await?).await? == 0 {
                    break;
                }
                failpoint::hit("deletion-batch")?;
            }
        }
        let delete = Statement::new("DELETE FROM project_deletions WHERE project = $1");
        delete.text("id", id).run(&mut *self.database.connection().await?).await?;
        Ok(())
    }
}
