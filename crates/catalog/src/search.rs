//! Searches: trees of episodes, in the table `episodes`. A search is identified by its first step, the root of the
//! tree (column `root`).
//!
//! The names given with values (`text("owner", …)`) appear only in error messages; parameters are positional.

use std::collections::HashMap;

use crate::episode::Episodes;
use crate::error::Result;
use crate::order::CreationOrder;
use crate::row::Row;
use crate::statement::{IDS_PER_STATEMENT, Parameters, Statement};

/// Search of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Id of the first step.
    pub id: String,
    /// Number of steps that belong to the owner.
    pub steps: u64,
}

/// Page of searches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchPage {
    /// Searches in the requested order.
    pub searches: Vec<Search>,
    /// Number of searches on all pages.
    pub total: u64,
    /// True if there are searches after these.
    pub has_more: bool,
}

impl Episodes<'_> {
    /// Returns a page of the searches that an owner began. `cursor` is the id of the last one of the previous page.
    pub async fn searches(
        &self,
        owner: &str,
        order: CreationOrder,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<SearchPage> {
        let mut connection = self.database.reader().await?;
        let count = Statement::new("SELECT COUNT(*) AS total FROM episodes WHERE owner = $1 AND root = id");
        let total = Row(count.text("owner", owner).one(&mut connection).await?).count("total")?;
        // Later ids sort later, so this is the order of creation.
        let (after, direction) = order.sql();
        let mut parameters = Parameters::default();
        let mut condition = format!("owner = ${} AND root = id", parameters.text("owner", owner));
        if let Some(cursor) = cursor {
            condition.push_str(&format!(" AND id {after} ${}", parameters.text("cursor", cursor)));
        }
        let limit_parameter = parameters.number(i64::from(limit) + 1);
        let sql = format!(
            "SELECT id FROM episodes WHERE {condition} ORDER BY id {direction} LIMIT ${limit_parameter}"
        );
        let rows = Statement::with_parameters(&sql, parameters).all(&mut connection).await?;
        drop(connection);
        let mut ids = rows.into_iter().map(|row| Row(row).text("id")).collect::<Result<Vec<_>>>()?;
        let has_more = ids.len() > limit as usize;
        ids.truncate(limit as usize);
        let mut steps = self.steps(owner, &ids).await?;
        let search = |id: String| Search { steps: steps.remove(&id).unwrap_or_default(), id };
        Ok(SearchPage { searches: ids.into_iter().map(search).collect(), total, has_more })
    }

    /// Counts the steps of an owner in each search, by the id of its first step.
    async fn steps(&self, owner: &str, roots: &[String]) -> Result<HashMap<String, u64>> {
        let mut steps = HashMap::new();
        for roots in roots.chunks(IDS_PER_STATEMENT) {
            let mut parameters = Parameters::default();
            let owner = parameters.text("owner", owner);
            let roots = parameters.texts("root", roots);
            let sql = format!(
                "SELECT root, COUNT(*) AS steps FROM episodes
                 WHERE owner = ${owner} AND root IN ({roots}) GROUP BY root"
            );
            let select = Statement::with_parameters(&sql, parameters);
            for row in select.all(&mut *self.database.reader().await?).await? {
                let row = Row(row);
                steps.insert(row.text("root")?, row.count("steps")?);
            }
        }
        Ok(steps)
    }

    /// Returns at most `limit` ids greater than `cursor`, in ascending order, of episodes in the store of a server
    /// whose search is not recorded: earlier versions inserted them.
    pub async fn without_search(&self, server: &str, cursor: &str, limit: u32) -> Result<Vec<String>> {
        let select = Statement::new(
            "SELECT id FROM episodes WHERE root = '' AND node IN ($1, '') AND id > $2 ORDER BY id LIMIT $3",
        );
        let select = select.text("server", server).text("id", cursor).number(limit.into());
        let rows = select.all(&mut *self.database.reader().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Records the searches that episodes belong to. Each pair is the id of an episode and that of the first step of
    /// its search.
    pub async fn set_searches(&self, roots: &[(String, String)]) -> Result<()> {
        for roots in roots.chunks(IDS_PER_STATEMENT) {
            let mut transaction = self.database.begin().await?;
            for (id, root) in roots {
                let update = Statement::new("UPDATE episodes SET root = $1 WHERE id = $2");
                update.text("root", root).text("id", id).run(&mut transaction).await?;
            }
            transaction.commit().await?;
        }
        Ok(())
    }
}
