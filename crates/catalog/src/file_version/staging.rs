//! File versions of a large import, written in pieces before the head moves.
//!
//! Staged rows have the sequence after that of the head. The column `staging` of the project names the attempt that
//! they belong to; every transaction that touches them checks it under the lock of that row. So two imports never mix
//! their rows, and a head that moves otherwise takes none of them along.

use sqlx::AnyConnection;

use super::{FileVersions, NewFileVersion, insert_all};
use crate::clock::now;
use crate::error::{CatalogError, Result};
use crate::failpoint;
use crate::row::Row;
use crate::statement::Statement;

/// Maximum number of rows deleted per transaction, so that others can write in between.
const DELETE_BATCH_SIZE: i64 = 2_000;

/// Attempt to stage versions, which ends when the head of its project moves or another attempt begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staging {
    project: String,
    /// Sequence of the head on which the attempt is based.
    sequence: i64,
    attempt: String,
}

impl Staging {
    /// Returns the sequence that the staged versions get.
    pub fn sequence(&self) -> i64 {
        self.sequence + 1
    }

    /// Returns true if the attempt is based on this head.
    pub(crate) fn is_based_on(&self, project: &str, sequence: i64) -> bool {
        self.project == project && self.sequence == sequence
    }

    fn replaced(&self) -> CatalogError {
        CatalogError::StagingReplaced { project: self.project.clone() }
    }
}

impl FileVersions<'_> {
    /// Begins to stage versions for the change after `sequence`, and discards those of earlier attempts. `attempt` is a
    /// unique id. Returns `None` if the head has another sequence.
    pub async fn begin_staging(
        &self,
        project: &str,
        sequence: i64,
        attempt: &str,
    ) -> Result<Option<Staging>> {
        let mut connection = self.database.connection().await?;
        let begin = Statement::new("UPDATE projects SET staging = $1 WHERE id = $2 AND sequence = $3");
        let begin = begin.text("attempt", attempt).text("project", project).number(sequence);
        if begin.run(&mut connection).await? == 0 {
            let select = Statement::new("SELECT id FROM projects WHERE id = $1").text("project", project);
            let found = select.optional(&mut connection).await?;
            return if found.is_some() { Ok(None) } else { Err(CatalogError::no_project(project)) };
        }
        drop(connection);
        let staging = Staging { project: project.to_owned(), sequence, attempt: attempt.to_owned() };
        while self.delete_batch(&staging).await? > 0 {}
        Ok(Some(staging))
    }

    /// Stages versions, in addition to those staged before. Fails with [`CatalogError::StagingReplaced`] if the
    /// attempt has ended.
    pub async fn stage(&self, staging: &Staging, versions: &[NewFileVersion]) -> Result<()> {
        let mut transaction = self.database.begin().await?;
        lock(&mut transaction, staging).await?;
        let rows: Vec<_> = versions.iter().map(|version| (staging.sequence(), version)).collect();
        insert_all(&mut transaction, &staging.project, &rows, now()).await?;
        transaction.commit().await?;
        failpoint::hit("versions-staged")
    }

    /// Discards what an attempt has staged, unless it has ended.
    pub async fn discard_staged(&self, staging: &Staging) -> Result<()> {
        loop {
            match self.delete_batch(staging).await {
                Ok(0) | Err(CatalogError::StagingReplaced { .. }) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes a batch of staged rows. Returns their number.
    async fn delete_batch(&self, staging: &Staging) -> Result<u64> {
        let mut transaction = self.database.begin().await?;
        lock(&mut transaction, staging).await?;
        let delete = Statement::new(
            "DELETE FROM file_versions WHERE project = $1 AND sequence = $2 AND file_id IN
             (SELECT file_id FROM file_versions WHERE project = $1 AND sequence = $2 ORDER BY file_id LIMIT $3)",
        );
        let delete = delete.text("project", &staging.project).number(staging.sequence());
        let deleted = delete.number(DELETE_BATCH_SIZE).run(&mut transaction).await?;
        transaction.commit().await?;
        Ok(deleted)
    }
}

/// Locks the row of the project, if the attempt has not ended.
async fn lock(connection: &mut AnyConnection, staging: &Staging) -> Result<()> {
    let lock = Statement::new(
        "UPDATE projects SET staging = staging WHERE id = $1 AND sequence = $2 AND staging = $3",
    );
    let lock = lock.text("project", &staging.project).number(staging.sequence);
    match lock.text("attempt", &staging.attempt).run(connection).await? {
        0 => Err(staging.replaced()),
        _ => Ok(()),
    }
}

/// Ends the current attempt of a project. Call it in the transaction that moves the head from `sequence`, after the
/// move, whose update holds the lock of the row. Keeps the staged rows if they are those of `staging`, and deletes them
/// otherwise.
pub(crate) async fn end_staging(
    connection: &mut AnyConnection,
    project: &str,
    sequence: i64,
    staging: Option<&Staging>,
) -> Result<()> {
    let select = Statement::new("SELECT staging FROM projects WHERE id = $1").text("project", project);
    let current = Row(select.one(connection).await?).optional_text("staging")?;
    match (&current, staging) {
        (Some(current), Some(staging)) if *current == staging.attempt => {}
        (_, Some(staging)) => return Err(staging.replaced()),
        (None, None) => return Ok(()),
        (Some(_), None) => {
            let delete = Statement::new("DELETE FROM file_versions WHERE project = $1 AND sequence > $2");
            delete.text("project", project).number(sequence).run(connection).await?;
        }
    }
    let end = Statement::new("UPDATE projects SET staging = NULL WHERE id = $1").text("project", project);
    end.run(connection).await?;
    Ok(())
}
