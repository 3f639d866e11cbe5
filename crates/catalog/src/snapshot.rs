//! The table `snapshots`: whose a snapshot is. What it holds is in the store of a server.

use std::collections::HashSet;

use sqlx::any::AnyRow;

use crate::catalog::Catalog;
use crate::clock::now;
use crate::error::Result;
use crate::row::Row;
use crate::statement::{Parameters, Statement};

/// Ids that are asked for at once; databases bound how many parameters a statement has.
const TOGETHER: usize = 500;

/// That somebody has a snapshot. One snapshot may have several owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedSnapshot {
    /// The snapshot.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// The sandbox that it was made in.
    pub sandbox: Option<String>,
    /// Since when, in milliseconds since 1970.
    pub created_at: i64,
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, owner, sandbox, created_at FROM snapshots ", $rest)
    };
}

/// Whose snapshots are.
#[derive(Debug, Clone, Copy)]
pub struct Snapshots<'c> {
    pub(crate) catalog: &'c Catalog,
}

impl Snapshots<'_> {
    /// Notes that somebody has a snapshot. A second time changes nothing.
    pub async fn add(&self, owner: &str, id: &str, sandbox: Option<&str>) -> Result<()> {
        let insert = Statement::new(
            "INSERT INTO snapshots (owner, id, sandbox, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (owner, id) DO NOTHING",
        );
        let insert = insert.text("owner", owner).text("id", id).optional_text("sandbox", sandbox);
        insert.number(now()).run(&mut *self.catalog.connection().await?).await?;
        Ok(())
    }

    /// Counts the snapshots of an owner.
    pub async fn count(&self, owner: &str) -> Result<u64> {
        let count = Statement::new("SELECT COUNT(*) AS total FROM snapshots WHERE owner = $1");
        let row = count.text("owner", owner).one(&mut *self.catalog.connection().await?).await?;
        Row(row).count("total")
    }

    /// Whether somebody has a snapshot.
    pub async fn owns(&self, owner: &str, id: &str) -> Result<bool> {
        let select = Statement::new("SELECT id FROM snapshots WHERE owner = $1 AND id = $2");
        let select = select.text("owner", owner).text("id", id);
        Ok(select.optional(&mut *self.catalog.connection().await?).await?.is_some())
    }

    /// Returns true if an owner, or anybody, has a snapshot.
    pub async fn is_noted(&self, owner: Option<&str>, id: &str) -> Result<bool> {
        if let Some(owner) = owner {
            return self.owns(owner, id).await;
        }
        let select = Statement::new("SELECT id FROM snapshots WHERE id = $1 LIMIT 1").text("id", id);
        Ok(select.optional(&mut *self.catalog.connection().await?).await?.is_some())
    }

    /// Those of some snapshots that somebody has.
    pub async fn owned(&self, owner: &str, ids: &[String]) -> Result<HashSet<String>> {
        let mut owned = HashSet::new();
        for ids in ids.chunks(TOGETHER) {
            let mut parameters = Parameters::default();
            let owner = parameters.text("owner", owner);
            let numbers: Vec<_> = ids.iter().map(|id| format!("${}", parameters.text("id", id))).collect();
            let numbers = numbers.join(", ");
            let sql = format!("SELECT id FROM snapshots WHERE owner = ${owner} AND id IN ({numbers})");
            let select = Statement::with(&sql, parameters);
            for row in select.all(&mut *self.catalog.connection().await?).await? {
                owned.insert(Row(row).text("id")?);
            }
        }
        Ok(owned)
    }

    /// So many snapshots of an owner, or of all, behind the last one of the page before. Newest first, as far as ids that are
    /// made later sort later.
    pub async fn list(
        &self,
        owner: Option<&str>,
        behind: Option<&OwnedSnapshot>,
        limit: u32,
    ) -> Result<Vec<OwnedSnapshot>> {
        let mut parameters = Parameters::default();
        let mut all = Vec::new();
        if let Some(owner) = owner {
            all.push(format!("owner = ${}", parameters.text("owner", owner)));
        }
        if let Some(last) = behind {
            let (id, owner) = (parameters.text("id", &last.id), parameters.text("owner", &last.owner));
            all.push(format!("(id < ${id} OR (id = ${id} AND owner > ${owner}))"));
        }
        let condition = if all.is_empty() { String::new() } else { format!("WHERE {}", all.join(" AND ")) };
        let limit = parameters.number(limit.into());
        let select = select!("");
        let sql = format!("{select} {condition} ORDER BY id DESC, owner LIMIT ${limit}");
        let select = Statement::with(&sql, parameters);
        select.all(&mut *self.catalog.connection().await?).await?.into_iter().map(read).collect()
    }

    /// Ids of an owner's snapshots, newest first, at most `limit`: those behind the id `behind`, without the first `skip`.
    pub async fn ids(&self, owner: &str, behind: Option<&str>, skip: u64, limit: u32) -> Result<Vec<String>> {
        let mut parameters = Parameters::default();
        let mut condition = format!("owner = ${}", parameters.text("owner", owner));
        if let Some(behind) = behind {
            condition.push_str(&format!(" AND id < ${}", parameters.text("id", behind)));
        }
        let limit = parameters.number(limit.into());
        let skip = parameters.number(i64::try_from(skip).unwrap_or(i64::MAX));
        let sql = format!(
            "SELECT id FROM snapshots WHERE {condition} ORDER BY id DESC LIMIT ${limit} OFFSET ${skip}"
        );
        let rows = Statement::with(&sql, parameters).all(&mut *self.catalog.connection().await?).await?;
        rows.into_iter().map(|row| Row(row).text("id")).collect()
    }

    /// Notes that somebody, or nobody any more, has a snapshot. Whether anybody else still has it.
    pub async fn remove(&self, owner: Option<&str>, id: &str) -> Result<bool> {
        let mut transaction = self.catalog.begin().await?;
        // Of two owners that let go of it at the same time the second must see that the first did.
        let claim = Statement::new("UPDATE snapshots SET created_at = created_at WHERE id = $1");
        claim.text("id", id).run(&mut transaction).await?;
        let delete = match owner {
            Some(owner) => Statement::new("DELETE FROM snapshots WHERE id = $1 AND owner = $2")
                .text("id", id)
                .text("owner", owner),
            None => Statement::new("DELETE FROM snapshots WHERE id = $1").text("id", id),
        };
        delete.run(&mut transaction).await?;
        let left = Statement::new("SELECT COUNT(*) AS total FROM snapshots WHERE id = $1");
        let left = Row(left.text("id", id).one(&mut transaction).await?).count("total")?;
        transaction.commit().await?;
        Ok(left > 0)
    }
}

fn read(row: AnyRow) -> Result<OwnedSnapshot> {
    let row = Row(row);
    Ok(OwnedSnapshot {
        id: row.text("id")?,
        owner: row.text("owner")?,
        sandbox: row.optional_text("sandbox")?,
        created_at: row.number("created_at")?,
    })
}
