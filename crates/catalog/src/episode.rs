//! The table `episodes`: whose an episode is. What it holds is in the store of a server.

use std::collections::HashSet;

use crate::catalog::Catalog;
use crate::clock::now;
use crate::error::Result;
use crate::row::Row;
use crate::statement::{Parameters, Statement};

/// Ids that are named at once; databases bound how many parameters a statement has.
const TOGETHER: usize = 500;

/// Whose episodes are.
#[derive(Debug, Clone, Copy)]
pub struct Episodes<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl Episodes<'_> {
    /// Records that an owner has an episode. A second time changes nothing.
    pub async fn add(&self, owner: &str, id: &str) -> Result<()> {
        let insert = Statement::new(
            "INSERT INTO episodes (owner, id, created_at) VALUES ($1, $2, $3) ON CONFLICT (owner, id) DO NOTHING",
        );
        let insert = insert.text("owner", owner).text("id", id).number(now());
        insert.run(&mut *self.catalog.connection().await?).await?;
        Ok(())
    }

    /// Counts the episodes of an owner.
    pub async fn count(&self, owner: &str) -> Result<u64> {
        let count = Statement::new("SELECT COUNT(*) AS total FROM episodes WHERE owner = $1");
        let row = count.text("owner", owner).one(&mut *self.catalog.connection().await?).await?;
        Row(row).count("total")
    }

    /// Those of some episodes that an owner has.
    pub async fn owned(&self, owner: &str, ids: &[String]) -> Result<HashSet<String>> {
        let mut owned = HashSet::new();
        for ids in ids.chunks(TOGETHER) {
            let mut parameters = Parameters::default();
            let owner = parameters.text("owner", owner);
            let ids = list(&mut parameters, ids);
            let sql = format!("SELECT id FROM episodes WHERE owner = ${owner} AND id IN ({ids})");
            let select = Statement::with(&sql, parameters);
            for row in select.all(&mut *self.catalog.connection().await?).await? {
                owned.insert(Row(row).text("id")?);
            }
        }
        Ok(owned)
    }

    /// Records that nobody has these episodes any more.
    pub async fn remove(&self, ids: &[String]) -> Result<()> {
        for ids in ids.chunks(TOGETHER) {
            let mut parameters = Parameters::default();
            let ids = list(&mut parameters, ids);
            let sql = format!("DELETE FROM episodes WHERE id IN ({ids})");
            Statement::with(&sql, parameters).run(&mut *self.catalog.connection().await?).await?;
        }
        Ok(())
    }
}

fn list<'a>(parameters: &mut Parameters<'a>, ids: &'a [String]) -> String {
    let numbers: Vec<_> = ids.iter().map(|id| format!("${}", parameters.text("id", id))).collect();
    numbers.join(", ")
}
