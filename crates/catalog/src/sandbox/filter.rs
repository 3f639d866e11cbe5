//! Filtered and paginated lists of sandboxes.

use std::collections::BTreeMap;

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::pause::IS_PAUSED;
use super::select_sandboxes;
use crate::error::Result;
use crate::row::Row;
use crate::state::VisibleState;
use crate::statement::{Parameters, Statement};

/// Maximum page size.
pub const PAGE_SIZE_MAX: u32 = 100;

/// Criteria for a page of sandboxes. A field that is `None` or empty matches every sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Owner; `None` for sandboxes of all owners.
    pub owner: Option<String>,
    /// Prefix of further owners whose sandboxes match: `acme/agents/` for what the agents of `acme` own. Used only
    /// together with `owner`.
    pub agent_owner_prefix: Option<String>,
    /// State; `None` for any.
    pub state: Option<VisibleState>,
    /// Prefix of the name, compared with case.
    pub name_prefix: Option<String>,
    /// Labels, all of which a sandbox must have.
    pub labels: BTreeMap<String, String>,
    /// Name of the project that the sandbox was created for; `None` for any.
    pub project_name: Option<String>,
    /// Name of the agent that works in the sandbox; `None` for any.
    pub agent_name: Option<String>,
    /// Creation time and id of the last sandbox of the previous page. Unlike page numbers, a cursor neither
    /// repeats nor skips sandboxes if some are created or removed in between.
    pub cursor: Option<(i64, String)>,
    /// Page number, counted from 1, after the cursor if there is one.
    pub page: u32,
    /// Page size, from 1 to [`PAGE_SIZE_MAX`].
    pub limit: u32,
}

impl Default for Filter {
    fn default() -> Self {
        let labels = BTreeMap::new();
        Self {
            owner: None,
            agent_owner_prefix: None,
            state: None,
            name_prefix: None,
            labels,
            project_name: None,
            agent_name: None,
            cursor: None,
            page: 1,
            limit: 20,
        }
    }
}

impl Filter {
    pub(super) async fn count(&self, connection: &mut AnyConnection) -> Result<u64> {
        let (condition, parameters) = self.condition();
        let sql = format!("SELECT COUNT(*) AS total FROM sandboxes {condition}");
        Row(Statement::with_parameters(&sql, parameters).one(connection).await?).count("total")
    }

    pub(super) async fn page(&self, connection: &mut AnyConnection) -> Result<Vec<AnyRow>> {
        let (condition, mut parameters) = self.condition();
        let after_cursor = self.cursor.as_ref().map(|(time, id)| {
            let (time, id) = (parameters.number(*time), parameters.text("id", id));
            let word = if condition.is_empty() { "WHERE" } else { "AND" };
            format!("{word} (created_at < ${time} OR (created_at = ${time} AND id > ${id}))")
        });
        let after_cursor = after_cursor.unwrap_or_default();
        let limit = i64::from(self.limit.clamp(1, PAGE_SIZE_MAX));
        let offset = i64::from(self.page.max(1) - 1) * limit;
        let (limit, offset) = (parameters.number(limit), parameters.number(offset));
        let select = select_sandboxes!();
        let sql = format!(
            "{select} {condition} {after_cursor} ORDER BY created_at DESC, id LIMIT ${limit} OFFSET ${offset}"
        );
        Statement::with_parameters(&sql, parameters).all(connection).await
    }

    /// Returns the `WHERE` clause. Its text depends only on which fields are set, never on their values.
    fn condition(&self) -> (String, Parameters<'_>) {
        let mut parameters = Parameters::default();
        let mut all = Vec::new();
        if let Some(owner) = &self.owner {
            let n = parameters.text("owner", owner);
            all.push(match &self.agent_owner_prefix {
                Some(prefix) => {
                    let prefix = parameters.text("owner_prefix", prefix);
                    format!("(owner = ${n} OR substr(owner, 1, length(${prefix})) = ${prefix})")
                }
                None => format!("owner = ${n}"),
            });
        }
        if let Some(state) = self.state {
            all.push(match state {
                VisibleState::Paused => IS_PAUSED.to_owned(),
                // A paused sandbox is stored as `running` (in memory) or `stopped` (on disk), and has neither state for
                // users.
                _ => {
                    let state = parameters.text("state", state.as_str());
                    format!("state = ${state} AND NOT {IS_PAUSED}")
                }
            });
        }
        if let Some(prefix) = &self.name_prefix {
            // `LIKE` would need escaped wildcards, and ignores case on SQLite.
            let n = parameters.text("name_prefix", prefix);
            all.push(format!("substr(name, 1, length(${n})) = ${n}"));
        }
        if let Some(project) = &self.project_name {
            all.push(format!("project = ${}", parameters.text("project", project)));
        }
        if let Some(agent) = &self.agent_name {
            all.push(format!("agent = ${}", parameters.text("agent", agent)));
        }
        for (name, value) in &self.labels {
            let (name, value) = (parameters.text("label", name), parameters.text("label", value));
            all.push(format!(
                "id IN (SELECT sandbox_id FROM sandbox_labels WHERE name = ${name} AND value = ${value})"
            ));
        }
        let condition = if all.is_empty() { String::new() } else { format!("WHERE {}", all.join(" AND ")) };
        (condition, parameters)
    }
}
