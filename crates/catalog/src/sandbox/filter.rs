//! Lists of sandboxes, narrowed and in pages.

use std::collections::BTreeMap;

use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::select;
use crate::error::Result;
use crate::row::Row;
use crate::state::State;
use crate::statement::{Parameters, Statement};

/// A page is never longer.
pub const LIMIT_MAX: u32 = 100;

/// Which sandboxes to list; what is empty fits all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Whose.
    pub owner: Option<String>,
    /// In which state.
    pub state: Option<State>,
    /// What their names begin with.
    pub name_prefix: Option<String>,
    /// Labels that they have, all of them.
    pub labels: BTreeMap<String, String>,
    /// Only those behind this one in the list: when it was made, and its id. Unlike pages, what is listed from here on
    /// neither repeats nor leaves out anything when sandboxes are made or removed meanwhile.
    pub behind: Option<(i64, String)>,
    /// Which page, counted from one; of those behind, if that is given.
    pub page: u32,
    /// How long a page is, from one to [`LIMIT_MAX`].
    pub limit: u32,
}

impl Default for Filter {
    fn default() -> Self {
        let labels = BTreeMap::new();
        Self { owner: None, state: None, name_prefix: None, labels, behind: None, page: 1, limit: 20 }
    }
}

impl Filter {
    pub(super) async fn count(&self, on: &mut AnyConnection) -> Result<u64> {
        let (condition, parameters) = self.condition();
        let sql = format!("SELECT COUNT(*) AS total FROM sandboxes {condition}");
        Row(Statement::with(&sql, parameters).one(on).await?).count("total")
    }

    pub(super) async fn page(&self, on: &mut AnyConnection) -> Result<Vec<AnyRow>> {
        let (condition, mut parameters) = self.condition();
        let behind = self.behind.as_ref().map(|(time, id)| {
            let (time, id) = (parameters.number(*time), parameters.text("id", id));
            let word = if condition.is_empty() { "WHERE" } else { "AND" };
            format!("{word} (created_at < ${time} OR (created_at = ${time} AND id > ${id}))")
        });
        let behind = behind.unwrap_or_default();
        let limit = i64::from(self.limit.clamp(1, LIMIT_MAX));
        let offset = i64::from(self.page.max(1) - 1) * limit;
        let (limit, offset) = (parameters.number(limit), parameters.number(offset));
        let select = select!("");
        let sql = format!(
            "{select} {condition} {behind} ORDER BY created_at DESC, id LIMIT ${limit} OFFSET ${offset}"
        );
        Statement::with(&sql, parameters).all(on).await
    }

    /// The text depends on which fields are set and on nothing that is in them.
    fn condition(&self) -> (String, Parameters<'_>) {
        let mut parameters = Parameters::default();
        let mut all = Vec::new();
        if let Some(owner) = &self.owner {
            all.push(format!("owner = ${}", parameters.text("owner", owner)));
        }
        if let Some(state) = self.state {
            all.push(format!("state = ${}", parameters.text("state", state.as_str())));
        }
        if let Some(prefix) = &self.name_prefix {
            // Not LIKE: its wildcards would need escapes, and SQLite's ignores case.
            let n = parameters.text("name_prefix", prefix);
            all.push(format!("substr(name, 1, length(${n})) = ${n}"));
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
