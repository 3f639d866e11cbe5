//! Table `template_steps`: steps of template builds whose results are kept.

use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::row::Row;
use crate::statement::Statement;

/// Kept result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateStep {
    /// Hash of everything that the step depends on.
    pub key: String,
    /// Snapshot with the result.
    pub snapshot: String,
    /// Name of the reference that keeps the snapshot in the store.
    pub reference: String,
}

impl TemplateStep {
    fn of_row(row: AnyRow) -> Result<Self> {
        let row = Row(row);
        Ok(Self { key: row.text("key")?, snapshot: row.text("snapshot")?, reference: row.text("reference")? })
    }
}

/// Queries on the table `template_steps`.
#[derive(Debug, Clone, Copy)]
pub struct TemplateSteps<'c> {
    pub(crate) database: &'c Database,
}

impl TemplateSteps<'_> {
    /// Finds the result of a step, and records its use.
    pub async fn find(&self, server: &str, key: &str) -> Result<Option<TemplateStep>> {
        let mut connection = self.database.connection().await?;
        let select = Statement::new(
            "UPDATE template_steps SET used_at = $1 WHERE server = $2 AND key = $3 RETURNING key, snapshot, reference",
        );
        let row =
            select.number(now()).text("server", server).text("key", key).optional(&mut connection).await?;
        row.map(TemplateStep::of_row).transpose()
    }

    /// Inserts the result of a step, unless there is one, and returns the one that is kept.
    pub async fn insert(&self, server: &str, step: &TemplateStep) -> Result<TemplateStep> {
        let insert = Statement::new(
            "INSERT INTO template_steps (server, key, snapshot, reference, created_at, used_at)
             VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (server, key) DO NOTHING",
        );
        insert
            .text("server", server)
            .text("key", &step.key)
            .text("snapshot", &step.snapshot)
            .text("reference", &step.reference)
            .number(now())
            .run(&mut *self.database.connection().await?)
            .await?;
        let kept = self.find(server, &step.key).await?;
        kept.ok_or_else(|| CatalogError::NotFound { what: "template step", id: step.key.clone() })
    }

    /// Lists all results of a server, the last used first.
    pub async fn list(&self, server: &str) -> Result<Vec<TemplateStep>> {
        let select = Statement::new(
            "SELECT key, snapshot, reference FROM template_steps WHERE server = $1 ORDER BY used_at DESC, key",
        );
        let rows = select.text("server", server).all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(TemplateStep::of_row).collect()
    }

    /// Deletes the results that were last used before `time`, in milliseconds since 1970, and all but the last used
    /// `max`. Returns the number of deleted results. Their references stay in the store: the caller removes those that
    /// no result in [`TemplateSteps::list`] has.
    pub async fn prune(&self, server: &str, time: i64, max: u32) -> Result<u64> {
        let delete = Statement::new(
            "DELETE FROM template_steps WHERE server = $1 AND (used_at < $2 OR key NOT IN (
                 SELECT key FROM template_steps WHERE server = $1 ORDER BY used_at DESC, key LIMIT $3))",
        );
        delete
            .text("server", server)
            .number(time)
            .number(max.into())
            .run(&mut *self.database.connection().await?)
            .await
    }

    /// Deletes a result whose snapshot is gone, unless another one has taken its place.
    pub async fn delete(&self, server: &str, step: &TemplateStep) -> Result<()> {
        let delete =
            Statement::new("DELETE FROM template_steps WHERE server = $1 AND key = $2 AND snapshot = $3");
        delete
            .text("server", server)
            .text("key", &step.key)
            .text("snapshot", &step.snapshot)
            .run(&mut *self.database.connection().await?)
            .await?;
        Ok(())
    }
}
