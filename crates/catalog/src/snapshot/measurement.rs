//! Bytes of the store by owner, measured by each garbage collection. Until then a new snapshot counts with the growth
//! of the store, and new content of a project does not count at all.

use std::collections::HashMap;

use super::{Snapshots, signed};
use crate::error::Result;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement};
use crate::unmeasured_bytes::DeletedBytes;

impl Snapshots<'_> {
    /// Returns the bytes of the store that an owner accounts for: its snapshots and projects, and what it has deleted
    /// since the last [`Self::set_sizes`]: content that another snapshot shares was counted only for the deleted one,
    /// and counts for the other from the next collection on.
    pub async fn bytes(&self, owner: &str) -> Result<u64> {
        // PostgreSQL sums integers to NUMERIC, which the driver does not convert to an integer.
        let sum = Statement::new(
            "SELECT CAST(
                (SELECT COALESCE(SUM(bytes), 0) FROM snapshots WHERE owner = $1)
                + (SELECT COALESCE(SUM(bytes), 0) FROM projects WHERE owner = $1)
                + (SELECT COALESCE(SUM(bytes), 0) FROM unmeasured_bytes WHERE owner = $1)
             AS BIGINT) AS total",
        );
        let row = sum.text("owner", owner).one(&mut *self.database.reader().await?).await?;
        Row(row).count("total")
    }

    /// Returns the bytes that owners have deleted and that still count, for [`Self::set_sizes`]. Read before a garbage
    /// collection begins: what is deleted meanwhile counts until the one after it.
    pub async fn deleted_bytes(&self) -> Result<DeletedBytes> {
        // In order, so that two servers do not wait for each other.
        let select = Statement::new("SELECT owner, bytes FROM unmeasured_bytes ORDER BY owner");
        let rows = select.all(&mut *self.database.reader().await?).await?.into_iter().map(Row);
        rows.map(|row| Ok((row.text("owner")?, row.number("bytes")?)))
            .collect::<Result<_>>()
            .map(DeletedBytes)
    }

    /// Sets the sizes of snapshots in bytes, as measured by a garbage collection, and those of projects, whose heads
    /// and completions are snapshots, too. `counted_before` is the result of [`Self::deleted_bytes`] from before the
    /// collection; these bytes do not count any more. Ids that do not exist are ignored.
    pub async fn set_sizes(&self, sizes: &[(String, u64)], counted_before: DeletedBytes) -> Result<()> {
        for sizes in sizes.chunks(IDS_PER_STATEMENT) {
            let mut transaction = self.database.begin().await?;
            for (id, bytes) in sizes {
                let update = Statement::new("UPDATE snapshots SET bytes = $1 WHERE id = $2 AND bytes <> $1");
                update.number(signed(*bytes)).text("id", id).run(&mut transaction).await?;
            }
            transaction.commit().await?;
        }
        self.set_project_sizes(&self.project_sizes(sizes).await?).await?;
        let mut transaction = self.database.begin().await?;
        for (owner, bytes) in counted_before.0 {
            let update = Statement::new("UPDATE unmeasured_bytes SET bytes = bytes - $1 WHERE owner = $2");
            update.number(bytes).text("owner", &owner).run(&mut transaction).await?;
            let delete = Statement::new("DELETE FROM unmeasured_bytes WHERE owner = $1 AND bytes <= 0");
            delete.text("owner", &owner).run(&mut transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Adds up the sizes of the heads and completions of each project. A snapshot that has an owner counts for the
    /// owner and not for the project.
    async fn project_sizes(&self, sizes: &[(String, u64)]) -> Result<HashMap<String, i64>> {
        let mut totals = HashMap::new();
        let sizes: Vec<_> = sizes.iter().filter(|(_, bytes)| *bytes > 0).collect();
        for sizes in sizes.chunks(IDS_PER_STATEMENT) {
            let ids: Vec<String> = sizes.iter().map(|(id, _)| id.clone()).collect();
            let by_id: HashMap<&str, u64> = sizes.iter().map(|(id, bytes)| (id.as_str(), *bytes)).collect();
            let mut parameters = Parameters::default();
            let ids = parameters.texts("id", &ids);
            let sql = format!(
                "SELECT project, snapshot FROM project_operations WHERE snapshot IN ({ids})
                 AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.id = snapshot)
                 UNION SELECT project, theirs_snapshot AS snapshot FROM completions WHERE theirs_snapshot IN ({ids})
                 AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.id = theirs_snapshot)"
            );
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await?.into_iter().map(Row) {
                let bytes = by_id.get(row.text("snapshot")?.as_str()).copied().unwrap_or_default();
                let total: &mut i64 = totals.entry(row.text("project")?).or_default();
                *total = total.saturating_add(signed(bytes));
            }
        }
        Ok(totals)
    }

    /// Sets the sizes of all projects. A project that is not in `sizes` gets 0: everything that it keeps in the store
    /// is counted for owners of snapshots.
    async fn set_project_sizes(&self, sizes: &HashMap<String, i64>) -> Result<()> {
        let select = Statement::new("SELECT id, bytes FROM projects ORDER BY id");
        let rows = select.all(&mut *self.database.reader().await?).await?.into_iter().map(Row);
        for row in rows {
            let id = row.text("id")?;
            let bytes = sizes.get(&id).copied().unwrap_or_default();
            if row.number("bytes")? != bytes {
                let update = Statement::new("UPDATE projects SET bytes = $1 WHERE id = $2");
                update.number(bytes).text("id", &id).run(&mut *self.database.connection().await?).await?;
            }
        }
        Ok(())
    }
}
