//! Table `policies`: versions of the policies of projects.

use serde_json::Value;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::Database;
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent};
use crate::row::Row;
use crate::statement::Statement;

/// Version of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Version, counted from 1.
    pub version: i64,
    /// Rules, as JSON.
    pub document: Value,
    /// Author of this version.
    pub author: String,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
}

/// Result of [`Policies::set`].
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyResult {
    /// The policy is in force.
    Set(Policy),
    /// Another request has changed the policy. Contains the version in force.
    Changed {
        /// Version in force.
        version: i64,
    },
}

/// Number of versions of a policy that are kept, since each can have megabytes.
const KEPT_VERSIONS: i64 = 100;

/// Queries on the table `policies`.
#[derive(Debug, Clone, Copy)]
pub struct Policies<'c> {
    pub(crate) database: &'c Database,
}

impl Policies<'_> {
    /// Sets the policy of a project if the version in force is `expected`, which is 0 before the first, and inserts
    /// events in the same transaction. Only the newest 100 versions are kept.
    pub async fn set(
        &self,
        project: &str,
        expected: i64,
        document: &Value,
        author: &str,
        events: &[NewEvent],
    ) -> Result<PolicyResult> {
        let (version, created_at, text) = (expected.saturating_add(1), now(), document.to_string());
        let mut transaction = self.database.begin().await?;
        let update = Statement::new(
            "UPDATE projects SET policy_version = $1, updated_at = $2 WHERE id = $3 AND policy_version = $4
             RETURNING owner",
        );
        let update = update.number(version).number(created_at).text("project", project).number(expected);
        let Some(row) = update.optional(&mut transaction).await? else {
            let select = Statement::new("SELECT policy_version FROM projects WHERE id = $1");
            let row = select.text("project", project).optional(&mut transaction).await?;
            let version =
                Row(row.ok_or_else(|| CatalogError::no_project(project))?).number("policy_version")?;
            return Ok(PolicyResult::Changed { version });
        };
        let insert = Statement::new(
            "INSERT INTO policies (project, version, document, author, created_at) VALUES ($1, $2, $3, $4, $5)",
        );
        let insert = insert.text("project", project).number(version).text("document", &text);
        insert.text("author", author).number(created_at).run(&mut transaction).await?;
        let delete = Statement::new("DELETE FROM policies WHERE project = $1 AND version <= $2");
        delete.text("project", project).number(version - KEPT_VERSIONS).run(&mut transaction).await?;
        event::insert_for_owner(&mut transaction, &Row(row).text("owner")?, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        let (document, author) = (document.clone(), author.to_owned());
        Ok(PolicyResult::Set(Policy { version, document, author, created_at }))
    }

    /// Returns a version of the policy of a project.
    pub async fn get(&self, project: &str, version: i64) -> Result<Option<Policy>> {
        let select = Statement::new(
            "SELECT version, document, author, created_at FROM policies WHERE project = $1 AND version = $2",
        );
        let select = select.text("project", project).number(version);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns the policy in force; `None` if the project has none, or does not exist.
    pub async fn current(&self, project: &str) -> Result<Option<Policy>> {
        Ok(self.list(project, None, 1).await?.pop())
    }

    /// Returns versions of the policy of a project, newest first, at most `limit`. With `before`, only those before
    /// that version.
    pub async fn list(&self, project: &str, before: Option<i64>, limit: u32) -> Result<Vec<Policy>> {
        let select = Statement::new(
            "SELECT version, document, author, created_at FROM policies WHERE project = $1 AND version < $2
             ORDER BY version DESC LIMIT $3",
        );
        let select = select.text("project", project).number(before.unwrap_or(i64::MAX)).number(limit.into());
        select.all(&mut *self.database.reader().await?).await?.into_iter().map(from_row).collect()
    }
}

fn from_row(row: AnyRow) -> Result<Policy> {
    let row = Row(row);
    Ok(Policy {
        version: row.number("version")?,
        document: row.json("document")?,
        author: row.text("author")?,
        created_at: row.number("created_at")?,
    })
}
