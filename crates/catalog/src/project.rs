//! Table `projects`: projects with their head.

mod advance;
mod deletion;

use std::collections::HashMap;

use serde_json::Value;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::clock::now;
use crate::database::{Database, DatabaseKind};
use crate::error::{CatalogError, Result};
use crate::event::{self, NewEvent};
use crate::order::CreationOrder;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement};

pub use advance::{Advance, AdvanceResult, AdvanceStep, ReviewedCompletion};

/// Statement that serialises creations by the same owner on PostgreSQL, so that they stay within the limit together.
/// 23 identifies the locks of this table; other tables use other numbers.
const LOCK_SQL: &str = "SELECT 1 FROM pg_advisory_xact_lock(23, hashtext($1))";

/// Project to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewProject {
    /// Unique id, `prj-` followed by a UUIDv7. Later ids sort later.
    pub id: String,
    /// Owner of the project.
    pub owner: String,
    /// Name, unique among the projects of the owner.
    pub name: String,
    /// Settings, as JSON.
    pub settings: Value,
}

/// Stored project.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// Unique id, `prj-` followed by a UUIDv7.
    pub id: String,
    /// Owner of the project.
    pub owner: String,
    /// Name, unique among the projects of the owner.
    pub name: String,
    /// Number of changes of the head.
    pub sequence: i64,
    /// Snapshot of the head; `None` before the first change.
    pub head: Option<String>,
    /// Version of the policy; 0 before the first.
    pub policy_version: i64,
    /// Settings, as JSON.
    pub settings: Value,
    /// Creation time in milliseconds since 1970.
    pub created_at: i64,
    /// Time of the last change of the row, and so of the head, in milliseconds since 1970.
    pub updated_at: i64,
}

/// Changes to a project; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProjectChange {
    /// New name.
    pub name: Option<String>,
    /// Settings to change, a JSON object: each of its fields replaces that of the stored settings; others stay.
    pub settings: Option<Value>,
}

/// Criteria for a page of projects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectFilter {
    /// Owner; `None` for projects of all owners.
    pub owner: Option<String>,
    /// Order of the projects.
    pub order: CreationOrder,
    /// Id of the last project of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of projects.
    pub limit: u32,
}

/// SQL text that selects all columns of rows of the table `projects`, for `from_row`. The argument is the rest of the
/// statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, owner, name, sequence, head, policy_version, settings, created_at, updated_at FROM projects ",
            $rest
        )
    };
}

/// Queries on the table `projects`.
#[derive(Debug, Clone, Copy)]
pub struct Projects<'c> {
    pub(crate) database: &'c Database,
}

impl Projects<'_> {
    /// Creates a project without a head, and inserts its events in the same transaction. Fails with
    /// [`CatalogError::LimitReached`] if the owner has `limit` projects, and with [`CatalogError::Exists`] if one of
    /// them has this name.
    pub async fn create(&self, new: &NewProject, limit: Option<u64>, events: &[NewEvent]) -> Result<Project> {
        let (created_at, settings) = (now(), new.settings.to_string());
        let mut transaction = self.database.begin().await?;
        if let Some(limit) = limit {
            if self.database.kind() == DatabaseKind::Postgres {
                Statement::new(LOCK_SQL).text("owner", &new.owner).run(&mut transaction).await?;
            }
            if count(&mut transaction, Some(&new.owner)).await? >= limit {
                return Err(CatalogError::LimitReached { what: "projects", limit });
            }
        }
        let insert = Statement::new(
            "INSERT INTO projects (id, owner, name, sequence, policy_version, settings, created_at, updated_at)
             VALUES ($1, $2, $3, 0, 0, $4, $5, $5)",
        );
        let insert = insert.text("id", &new.id).text("owner", &new.owner).text("name", &new.name);
        let inserted = insert.text("settings", &settings).number(created_at).run(&mut transaction).await;
        inserted.map_err(|error| error.unique_key_as_exists("project", &new.name))?;
        event::insert_for_owner(&mut transaction, &new.owner, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        let new = new.clone();
        Ok(Project {
            id: new.id,
            owner: new.owner,
            name: new.name,
            sequence: 0,
            head: None,
            policy_version: 0,
            settings: new.settings,
            created_at,
            updated_at: created_at,
        })
    }

    /// Returns a project by id, of any owner.
    pub async fn get(&self, id: &str) -> Result<Option<Project>> {
        get(&mut *self.database.reader().await?, id).await
    }

    /// Returns the projects with these ids that exist, of any owner, by id. One query for each 500 ids.
    pub async fn with_ids(&self, ids: &[String]) -> Result<HashMap<String, Project>> {
        let mut projects = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let (select, ids) = (select!(""), parameters.texts("id", ids));
            let sql = format!("{select} WHERE id IN ({ids})");
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await? {
                let project = from_row(row)?;
                projects.insert(project.id.clone(), project);
            }
        }
        Ok(projects)
    }

    /// Returns a project of an owner by its name.
    pub async fn find(&self, owner: &str, name: &str) -> Result<Option<Project>> {
        let select = Statement::new(select!("WHERE owner = $1 AND name = $2"));
        let select = select.text("owner", owner).text("name", name);
        select.optional(&mut *self.database.reader().await?).await?.map(from_row).transpose()
    }

    /// Returns a page of projects, and the number of projects on all pages.
    pub async fn list(&self, filter: &ProjectFilter) -> Result<(Vec<Project>, u64)> {
        let mut connection = self.database.reader().await?;
        let total = count(&mut connection, filter.owner.as_deref()).await?;
        let (after, direction) = filter.order.sql();
        let mut parameters = Parameters::default();
        let mut all = Vec::new();
        if let Some(owner) = &filter.owner {
            all.push(format!("owner = ${}", parameters.text("owner", owner)));
        }
        if let Some(cursor) = &filter.cursor {
            all.push(format!("id {after} ${}", parameters.text("cursor", cursor)));
        }
        let condition = if all.is_empty() { String::new() } else { format!("WHERE {}", all.join(" AND ")) };
        let (select, limit) = (select!(""), parameters.number(filter.limit.into()));
        let sql = format!("{select} {condition} ORDER BY id {direction} LIMIT ${limit}");
        let rows = Statement::with_parameters(&sql, parameters).all(&mut connection).await?;
        Ok((rows.into_iter().map(from_row).collect::<Result<_>>()?, total))
    }

    /// Counts the projects of an owner, or of all owners.
    pub async fn count(&self, owner: Option<&str>) -> Result<u64> {
        count(&mut *self.database.reader().await?, owner).await
    }

    /// Changes name or settings, and inserts events in the same transaction. Returns `None`, and inserts no events,
    /// if the project does not exist. Fails with [`CatalogError::Exists`] if the owner
    /// has another project of this name.
    pub async fn update(
        &self,
        id: &str,
        change: &ProjectChange,
        events: &[NewEvent],
    ) -> Result<Option<Project>> {
        let mut transaction = self.database.begin().await?;
        let update =
            Statement::new("UPDATE projects SET name = COALESCE($1, name), updated_at = $2 WHERE id = $3");
        let update = update.optional_text("name", change.name.as_deref()).number(now()).text("id", id);
        let name = change.name.as_deref().unwrap_or_default();
        let updated = update.run(&mut transaction).await;
        updated.map_err(|error| error.unique_key_as_exists("project", name))?;
        let Some(mut project) = get(&mut transaction, id).await? else { return Ok(None) };
        if let Some(changes) = &change.settings {
            // The update above has locked the row: settings that others change meanwhile are not lost.
            merge_settings(&mut project.settings, changes);
            let settings = project.settings.to_string();
            let update = Statement::new("UPDATE projects SET settings = $1 WHERE id = $2");
            update.text("settings", &settings).text("id", id).run(&mut transaction).await?;
        }
        event::insert_for_owner(&mut transaction, &project.owner, events).await?;
        self.database.commit_and_wake_readers(transaction, events).await?;
        Ok(Some(project))
    }
}

fn merge_settings(settings: &mut Value, changes: &Value) {
    match (settings.as_object_mut(), changes.as_object()) {
        (Some(settings), Some(changes)) => {
            settings.extend(changes.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        _ => settings.clone_from(changes),
    }
}

async fn get(connection: &mut AnyConnection, id: &str) -> Result<Option<Project>> {
    let select = Statement::new(select!("WHERE id = $1"));
    select.text("id", id).optional(connection).await?.map(from_row).transpose()
}

async fn count(connection: &mut AnyConnection, owner: Option<&str>) -> Result<u64> {
    let count = match owner {
        Some(owner) => {
            Statement::new("SELECT COUNT(*) AS total FROM projects WHERE owner = $1").text("owner", owner)
        }
        None => Statement::new("SELECT COUNT(*) AS total FROM projects"),
    };
    Row(count.one(connection).await?).count("total")
}

fn from_row(row: AnyRow) -> Result<Project> {
    let row = Row(row);
    Ok(Project {
        id: row.text("id")?,
        owner: row.text("owner")?,
        name: row.text("name")?,
        sequence: row.number("sequence")?,
        head: row.optional_text("head")?,
        policy_version: row.number("policy_version")?,
        settings: row.json("settings")?,
        created_at: row.number("created_at")?,
        updated_at: row.number("updated_at")?,
    })
}
